//! Checks of a volume in use.

use alloc::string::String;
use alloc::sync::Arc;

use super::*;
use crate::batch::Batch;
use crate::error::Error;
use crate::io::mem::MemDevice;
use crate::key::Cut;
use crate::settings::{DictId, Geometry, Options};
use crate::upsert::Replace;

const D: DictId = DictId(0);
/// Changes that come during one check.
const CHANGES: u32 = 300;

/// An environment with tiny nodes on a device of 64 MiB.
fn env() -> Arc<Env> {
    let geometry =
        Geometry { node_bytes: 2048, basement_bytes: 512, fanout_max: 4, log_bytes: 4 << 20, dicts: 2 };
    let device = MemDevice::new(16 << 10);
    Env::format(device.clone(), &geometry, [1; 16]).unwrap();
    Arc::new(Env::open(device, Options::new(256 << 10, Arc::new(Replace))).unwrap())
}

fn dir(kind: &str, step: u32) -> String {
    format!("{kind}{step:05}/")
}

/// Any change of a tree, or a piece of background work.
fn change(env: &Arc<Env>, step: u32) {
    let mut batch = Batch::new();
    match step % 9 {
        0 | 1 => {
            for number in 0..20 {
                let key = format!("a/{:03}", (step * 13 + number * 7) % 400);
                batch.put(D, key.as_bytes(), &[step as u8; 60]);
            }
        }
        2 => batch.clone_range(D, b"a/", dir("clone", step).as_bytes()),
        3 => {
            let gone = dir("clone", step.saturating_sub(28));
            batch.delete_range(D, &Cut::before(gone.clone()), &Cut::after(gone));
            batch.mark_freeing(1 << 20);
        }
        4 => {
            let pairs = (0..100).map(|number| {
                Ok::<_, Error>((format!("{}{number:03}", dir("ingest", step % 81)), [step as u8; 60]))
            });
            env.ingest(D, pairs).unwrap();
        }
        5 => env.checkpoint().unwrap(),
        _ => {
            for _ in 0..3 {
                env.run_due_work().unwrap();
            }
        }
    }
    env.commit(&batch).unwrap();
}

#[test]
fn a_check_in_use_finds_nothing_whatever_comes_between_two_nodes() {
    let env = env();
    let mut step = 0;
    let mut change_once = || {
        change(&env, step);
        step += 1;
    };
    (0..100).for_each(|_| change_once());
    for _ in 0..4 {
        let mut problems = Vec::new();
        let mut left = CHANGES;
        let mut tell = |found: Finding| problems.extend(found.into_problem());
        env.check_in_use(&mut tell, &mut |done, all| {
            assert!(done <= all);
            if left > 0 {
                left -= 1;
                change_once();
            }
            ControlFlow::Continue(())
        })
        .unwrap();
        assert_eq!(problems, Vec::<String>::new());
        assert!(CHANGES - left > CHANGES / 3, "{left} changes are left");
    }
    let mut problems = Vec::new();
    env.check(&mut |found| problems.extend(found.into_problem()), &mut |_, _| ()).unwrap();
    assert_eq!(problems, Vec::<String>::new());
    assert!(env.engine.dicts.iter().all(|dict| dict.state.read().history.is_empty()));
}
