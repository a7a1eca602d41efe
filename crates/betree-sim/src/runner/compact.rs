//! Compactions beside the model, which knows nothing of them.

use std::ops::ControlFlow;
use std::sync::Arc;

use betree::{Env, Error};

use super::Runner;
use crate::failure::{Failure, wrong};
use crate::step::Compaction;

impl Runner {
    /// Compacts a range; before leaves are put in place, takes the steps of others.
    pub(super) fn compact(&mut self, compaction: &Compaction) -> Result<(), Failure> {
        let Compaction { dict, lo, hi, meanwhile } = compaction;
        let env: Arc<Env> = self.env()?.clone();
        let (mut at, mut failed) = (0, None);
        let done = env.compact(*dict, lo, hi, |_| {
            let mut others = meanwhile.iter().filter(|(before, _)| *before == at).map(|(_, step)| step);
            failed = others.try_for_each(|step| self.step(step)).err();
            at += 1;
            if failed.is_some() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        });
        // Where it deletes what nobody sees, a transaction may meet that as a change.
        self.others_have_committed();
        if let Some(failure) = failed {
            return Err(failure);
        }
        let done = match done {
            // Contents are as before.
            Err(Error::NoSpace) => return Ok(()),
            done => done?,
        };
        if done.written_bytes > 0 && done.steps == 0 {
            return wrong(format!("{done:?}"));
        }
        Ok(())
    }
}
