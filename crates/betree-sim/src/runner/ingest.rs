//! Ingests beside the model.

use std::sync::Arc;

use betree::{Env, Error};

use super::Runner;
use crate::failure::{Failure, wrong};
use crate::model::Edit;
use crate::step::Ingest;

impl Runner {
    /// Ingests pairs; while they come, takes the steps of others.
    pub(super) fn ingest(&mut self, ingest: &Ingest) -> Result<(), Failure> {
        let env: Arc<Env> = self.env()?.clone();
        let dict = ingest.dict;
        let edits: Vec<Edit> =
            ingest.pairs.iter().map(|(key, value)| Edit::Put(dict, key.clone(), value.clone())).collect();
        let (mut at, mut is_attempted, mut has_failed) = (0, false, false);
        let pairs = std::iter::from_fn(|| {
            if ingest.fails_at == Some(at) {
                has_failed = true;
                return Some(Err(Failure::Wrong("the caller fails".into())));
            }
            let others = ingest.meanwhile.iter().filter(|(before, _)| *before == at);
            if let Err(failure) = others.map(|(_, step)| step).try_for_each(|step| self.step(step)) {
                return Some(Err(failure));
            }
            let next = ingest.pairs.get(at);
            if next.is_none() {
                // From here on a crash may leave all of it.
                self.history.attempt(&edits);
                is_attempted = true;
            }
            at += 1;
            next.map(|(key, value)| Ok((key, value)))
        });
        let done = env.ingest(dict, pairs);
        match done {
            Ok(ingested) => {
                self.history.accepted();
                self.others_have_committed();
                let bytes: usize = ingest.pairs.iter().map(|(key, value)| key.len() + value.len()).sum();
                if (ingested.pairs, ingested.pair_bytes) != (ingest.pairs.len() as u64, bytes as u64) {
                    return wrong(format!("{ingested:?} of {} pairs", ingest.pairs.len()));
                }
                match ingest.disorder() {
                    Some(position) => wrong(format!("an ingest took pair {position} out of order")),
                    None => Ok(()),
                }
            }
            Err(Failure::Wrong(_)) if has_failed => Ok(()),
            Err(Failure::Engine(Error::NotInOrder { position })) => {
                if ingest.disorder() == Some(position as usize) {
                    return Ok(());
                }
                wrong(format!("pair {position} is said to be out of order, and {:?} is", ingest.disorder()))
            }
            Err(failure) => {
                let is_refused = matches!(
                    failure,
                    Failure::Engine(Error::NoSpace | Error::DeviceFull(_) | Error::ReadOnly { .. })
                );
                if is_attempted && is_refused {
                    self.history.refused();
                }
                Err(failure)
            }
        }
    }
}
