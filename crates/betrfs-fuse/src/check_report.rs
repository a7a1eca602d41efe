//! The report of a check or a scrub as it goes from a mount's server to the command, and to programs.

use std::collections::BTreeSet;

use betree::{ScrubRecord, ScrubState};
use betrfs::{Problem, Report, Scrubbed, is_of_later_version};
use serde::{Deserialize, Serialize};

/// A problem that a check found.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CheckProblem {
    /// The kind of problem, by a name that does not change.
    pub code: String,
    /// The damaged structure.
    pub place: Option<String>,
    /// Where it begins on the device, in bytes.
    pub offset: Option<u64>,
    /// The paths of the first files with it.
    pub files: Vec<String>,
    /// A sentence.
    pub what: String,
}

/// The result of a check, without the reason why a volume cannot be opened.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CheckReport {
    /// The first problems.
    pub problems: Vec<CheckProblem>,
    /// Number of problems beyond those.
    pub problems_more: u64,
    /// What repairs have noted as lost: no problems.
    #[serde(default)]
    pub known_damage: Vec<CheckProblem>,
    /// Number of ranges of known damage beyond those, at most.
    #[serde(default)]
    pub known_damage_more: u64,
    /// Sentences that are not about problems: checks that could not be made, and why.
    pub notes: Vec<String>,
    /// The paths of files and directories with a problem or an unreadable part.
    pub files: BTreeSet<String>,
    /// Number of files beyond those, at most.
    pub files_more: u64,
}

impl CheckReport {
    /// The number of problems.
    pub fn found(&self) -> u64 {
        self.problems.len() as u64 + self.problems_more
    }

    /// The number of problems that are things of a later version of this program, which are no damage: of
    /// those that are listed.
    pub fn of_later_version(&self) -> u64 {
        self.problems.iter().filter(|problem| is_of_later_version(&problem.code)).count() as u64
    }
}

impl From<Problem> for CheckProblem {
    fn from(problem: Problem) -> CheckProblem {
        let Problem { code, place, files, what, .. } = problem;
        let offset = place.as_ref().and_then(|place| place.offset());
        let place = place.map(|place| place.name().to_owned());
        CheckProblem { code: code.to_owned(), place, offset, files, what }
    }
}

impl From<Report> for CheckReport {
    fn from(report: Report) -> CheckReport {
        let Report {
            problems, problems_more, known_damage, known_damage_more, notes, files, files_more, ..
        } = report;
        let problems = problems.into_iter().map(CheckProblem::from).collect();
        let known_damage = known_damage.into_iter().map(CheckProblem::from).collect();
        CheckReport { problems, problems_more, known_damage, known_damage_more, notes, files, files_more }
    }
}

/// The record of a scrub as programs get it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ScrubStatus {
    /// `under-way`, `interrupted` (`betrfs scrub --resume` goes on from there) or `complete`.
    pub state: String,
    /// When it began, in seconds since 1970-01-01 00:00 UTC.
    pub began: i64,
    /// When it ended or, under way, when it was as far as this says; in seconds since 1970-01-01 00:00 UTC.
    pub written: i64,
    /// The bytes that it has read.
    pub read_bytes: u64,
    /// The number of problems that it has found.
    pub problems: u64,
}

impl From<ScrubRecord> for ScrubStatus {
    fn from(record: ScrubRecord) -> ScrubStatus {
        let state = match record.state {
            ScrubState::UnderWay => "under-way",
            ScrubState::Interrupted => "interrupted",
            ScrubState::Complete => "complete",
        };
        ScrubStatus {
            state: state.to_owned(),
            began: record.began_ns / 1_000_000_000,
            written: record.written_ns / 1_000_000_000,
            read_bytes: record.read_bytes,
            problems: record.problems,
        }
    }
}

/// The result of a scrub.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ScrubReport {
    /// What it has found.
    #[serde(flatten)]
    pub report: CheckReport,
    /// How far it has come.
    pub scrub: ScrubStatus,
}

impl From<Scrubbed> for ScrubReport {
    fn from(Scrubbed { report, record }: Scrubbed) -> ScrubReport {
        ScrubReport { report: report.into(), scrub: record.into() }
    }
}
