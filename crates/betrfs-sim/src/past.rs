//! The states of a volume since the last one that is known to be durable.

use crate::compare::{Inos, difference, take_late_ctimes};
use crate::model::{Lag, State};
use crate::tree::Found;

/// The states that a crash may leave: the last durable one, or one after it.
pub struct Past {
    /// Never empty.
    states: Vec<State>,
    /// The number of the last one that is known to be durable.
    durable: usize,
    /// The states that an unfinished operation may have reached.
    unfinished: Vec<State>,
}

/// How old a state may be that a volume holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Oldest {
    /// Not older than the last durable one.
    Durable,
    /// As old as any since the volume was opened: the end of a log that was lost looks like its end.
    Any,
}

impl Past {
    /// A past that durably begins with a state.
    pub fn of(state: State) -> Past {
        Past { states: vec![state], durable: 0, unfinished: Vec::new() }
    }

    /// The state that a reader should see.
    pub fn latest(&self) -> &State {
        // There is always a first one.
        &self.states[self.states.len() - 1]
    }

    /// Adds the states that an operation has gone through.
    pub fn add(&mut self, between: Vec<State>, after: State) {
        self.states.extend(between);
        self.states.push(after);
    }

    /// Notes that everything was read, whichever of the states it was.
    pub fn all_read(&mut self, now_ns: i64) {
        self.states.iter_mut().chain(&mut self.unfinished).for_each(|state| state.all_read(now_ns));
    }

    /// Replaces the latest state by one that differs in what need not survive a crash.
    pub fn amend(&mut self, state: State) {
        self.states.pop();
        self.states.push(state);
    }

    /// Removals that a full disk has stopped are done, later than they began.
    pub fn removals_have_ended(&mut self) {
        let mut state = self.latest().clone();
        state.note_lag(Lag::Times);
        self.amend(state);
    }

    /// Notes an operation that was cut off: each of its states may have been reached, or none.
    pub fn unfinished(&mut self, between: Vec<State>, after: State) {
        self.unfinished = between;
        self.unfinished.push(after);
    }

    /// Everything so far is durable.
    pub fn is_durable(&mut self) {
        self.durable = self.states.len() - 1;
        self.unfinished.clear();
    }

    /// Number of states that a crash may leave.
    pub fn possible(&self) -> usize {
        self.states.len() - self.durable + self.unfinished.len()
    }

    /// The states that a volume may hold, the newest first; as old as any since it was opened if `any`.
    pub fn possible_states(&self, any: bool) -> Vec<&State> {
        let first = if any { 0 } else { self.durable };
        let mut states: Vec<&State> = self.states[first..].iter().chain(&self.unfinished).collect();
        states.reverse();
        states
    }

    /// Finds the state that a volume holds; returns it with its number, 0 for the oldest that is possible.
    ///
    /// # Errors
    /// It holds none of them: a sentence that compares it with the nearest one.
    pub fn recovered(
        &self,
        found: &Found,
        oldest: Oldest,
        inos: &mut Inos,
    ) -> Result<(usize, State), String> {
        let first = match oldest {
            Oldest::Durable => self.durable,
            Oldest::Any => 0,
        };
        let all = || self.states[first..].iter().chain(&self.unfinished).enumerate();
        let mut told = Vec::new();
        // The newest first: most of a log survives most crashes.
        let mut newest_first: Vec<(usize, &State)> = all().collect();
        newest_first.reverse();
        for (number, state) in &newest_first {
            match difference(state, found, inos) {
                None => return Ok((*number, (*state).clone())),
                Some(what) => told.push(format!("state {number}: {what}")),
            }
        }
        // The opening may have gone on with a removal.
        for (number, state) in newest_first {
            let mut state = state.clone();
            take_late_ctimes(&mut state, found);
            if difference(&state, found, inos).is_none() {
                return Ok((number, state));
            }
        }
        const TOLD_MAX: usize = 6;
        let more = told.len().saturating_sub(TOLD_MAX);
        told.truncate(TOLD_MAX);
        Err(format!(
            "it holds none of {} states, of which {} is durable and {} unfinished:\n    {}{}",
            all().count(),
            self.durable - first,
            self.unfinished.len(),
            told.join("\n    "),
            if more > 0 { format!("\n    and {more} more") } else { String::new() }
        ))
    }
}
