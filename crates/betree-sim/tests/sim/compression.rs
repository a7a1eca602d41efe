//! Each kind of compression keeps the data, and a volume may be written with several.

// A failing call fails the test, also in the functions that tests share.
#![allow(clippy::unwrap_used)]

use std::sync::Arc;

use betree::{Batch, Compression, Cut, DictId, Env, Error, Geometry, Options, Replace};
use betree_sim::{MemDevice, Rng, problems};
use betree_std::Zstd;

const D: DictId = DictId(0);
const GEOMETRY: Geometry =
    Geometry { node_bytes: 64 << 10, basement_bytes: 8 << 10, fanout_max: 8, log_bytes: 1 << 20, dicts: 1 };

fn options(compression: Compression) -> Options {
    let zstd = Some(Arc::new(Zstd::default()) as Arc<dyn betree_platform::Codec>);
    let mut options = Options::new(1 << 20, Arc::new(Replace));
    options.compression = compression;
    options.zstd = zstd;
    options
}

/// Text that compresses; every fourth value is noise that does not.
fn value(number: u32) -> Vec<u8> {
    let mut rng = Rng::new(u64::from(number));
    if number.is_multiple_of(4) {
        (0..700).map(|_| rng.next_u64() as u8).collect()
    } else {
        format!("the value of {number} ").repeat(30).into_bytes()
    }
}

fn put(env: &Env, numbers: std::ops::Range<u32>) {
    for number in numbers {
        let mut batch = Batch::new();
        batch.put(D, &number.to_be_bytes(), &value(number));
        env.throttle(batch.bytes()).unwrap();
        env.commit(&batch).unwrap();
    }
}

#[test]
fn data_written_with_several_compressions_is_read_with_any() {
    let device = Arc::new(MemDevice::new(64 << 20));
    Env::format(device.clone(), &GEOMETRY, [3; 16]).unwrap();
    let mut used = Vec::new();
    let ways = [Compression::None, Compression::Lz4, Compression::Zstd];
    for (round, compression) in (0u32..).zip(ways) {
        let env = Env::open(device.clone(), options(compression)).unwrap();
        let before = env.space().used_bytes;
        put(&env, round * 2000..(round + 1) * 2000);
        env.close().unwrap();
        used.push(env.space().used_bytes - before);
    }
    assert!(used[1] * 10 < used[0] * 7, "LZ4 takes {} where none takes {}", used[1], used[0]);
    assert!(used[2] * 10 < used[0] * 7, "zstd takes {} where none takes {}", used[2], used[0]);
    for compression in ways {
        let env = Env::open(device.clone(), options(compression)).unwrap();
        let mut cursor = env.cursor(D, Cut::LOW, Cut::HIGH);
        for number in 0..6000u32 {
            let (key, found) = cursor.next().unwrap().unwrap();
            assert_eq!((key, found), (&number.to_be_bytes()[..], value(number).as_slice()));
        }
        assert!(cursor.next().unwrap().is_none());
        let problems = problems(&env).unwrap();
        assert_eq!(problems, Vec::<String>::new());
        env.close().unwrap();
    }
    // Without zstd, a read that needs it fails with an error that says so.
    let without = Env::open(device, Options::new(1 << 20, Arc::new(Replace)));
    let error = without.and_then(|env| env.get(D, &5001u32.to_be_bytes())).unwrap_err();
    assert!(matches!(&error, Error::Corrupt { why, .. } if why.contains("zstd")), "{error}");
}
