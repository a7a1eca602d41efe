//! Rounds of a suite on each engine in turn.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result};
use bench_harness::disk::loop_device;
use bench_harness::memory_limit::MemoryLimit;
use bench_harness::output::tell;
use bench_harness::scale::Scale;
use bench_harness::touch;
use serde::{Deserialize, Serialize};

use crate::image::{self, Mounted};
use crate::meter::{Figure, Meter};
use crate::sample::{Results, Samples};
use crate::stores::{Budget, Engine};
use crate::suites::{self, Place, Suite};
use crate::{Bench, SUITE_CHILD, TIME_MAX};

/// The most memory that is touched before a round, in bytes: more than a database in memory takes.
const TOUCHED_BYTES_MAX: u64 = 1 << 30;

/// What is to be done in a process of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
enum Phase {
    /// Loads the database with which rounds begin.
    Load,
    /// Measures.
    Run,
}

/// A phase of a suite with its parameters.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct SuiteTask {
    engine: Engine,
    suite: String,
    scale: Scale,
    /// The memory limit of data that is larger than memory, and the size of that data.
    memory_bytes: u64,
    data_bytes: u64,
    step: Duration,
    phase: Phase,
    dir: PathBuf,
    device: PathBuf,
}

impl SuiteTask {
    /// Does it. Nothing is measured while it loads.
    pub fn run(self) -> Result<Vec<Figure>> {
        let suites = suites::all(self.scale, self.memory_bytes, self.data_bytes);
        let suite = suites.into_iter().find(|suite| suite.name() == self.suite);
        let suite = suite.with_context(|| format!("there is no suite `{}`", self.suite))?;
        let budget = Budget::of(suite.memory_bytes(), suite.data_bytes());
        let open = || self.engine.open(&self.dir, budget);
        let open_transactional = || self.engine.open_transactional(&self.dir, budget);
        let place = Place {
            open: &open,
            open_transactional: &open_transactional,
            dir: &self.dir,
            budget,
            step: self.step,
        };
        let counters = || loop_device::counters(&self.device);
        let mut meter = Meter::new(&counters);
        match self.phase {
            Phase::Load => suite.load(&place)?,
            Phase::Run => suite.run(&place, &mut meter)?,
        }
        Ok(meter.figures)
    }
}

impl Bench<'_> {
    /// Rounds of a suite on each engine in turn: the results of each of its measurements.
    pub fn measure_suite(&self, suite: &dyn Suite, rounds: u32) -> Result<Vec<Results>> {
        let limit = self.limit(suite.memory_bytes())?;
        let mut engines: Vec<Engine> =
            self.engines.iter().copied().filter(|engine| suite.suits(*engine)).collect();
        let mut all = Vec::new();
        for round in 1..=rounds {
            engines.retain(|engine| {
                let name = format!("{} on {}", suite.name(), engine.name());
                let _watched = self.teardown.watch(&name, TIME_MAX);
                match self.suite_round(suite, *engine, &limit) {
                    Ok(figures) => {
                        for figure in figures {
                            let per_second = figure.sample.operations as f64 / figure.sample.seconds;
                            let (figured, engine) = (&figure.name, engine.name());
                            tell(format_args!("{figured} on {engine}, round {round}: {per_second:.0}/s"));
                            let samples = samples_of(&mut all, &limit, &figure.name, &figure.about, &engine);
                            samples.rounds.push(figure.sample);
                        }
                        true
                    }
                    Err(error) => {
                        tell(format_args!("{name}, round {round}: {error:#}"));
                        let about = suite.about();
                        let samples = samples_of(&mut all, &limit, suite.name(), &about, &engine.name());
                        samples.failure = Some(format!("{error:#}"));
                        false
                    }
                }
            });
        }
        Ok(all)
    }

    fn suite_round(&self, suite: &dyn Suite, engine: Engine, limit: &MemoryLimit) -> Result<Vec<Figure>> {
        let image = self.scratch.join("image");
        let size_bytes = self.image_bytes(suite.data_bytes());
        match suite.is_preloaded() {
            true => {
                let loaded = self.scratch.join(format!("{}.{}", suite.name(), engine.name()));
                if !loaded.exists() {
                    image::make(&image, size_bytes)?;
                    self.suite_child(suite, engine, limit, Phase::Load)?;
                    std::fs::rename(&image, &loaded)?;
                }
                image::copy(&loaded, &image)?;
            }
            false => image::make(&image, size_bytes)?,
        }
        if self.scale != Scale::Tiny {
            touch::touch(suite.memory_bytes().min(TOUCHED_BYTES_MAX))?;
        }
        let figures = self.suite_child(suite, engine, limit, Phase::Run)?;
        std::fs::remove_file(&image)?;
        Ok(figures)
    }

    /// Runs a phase in a process of its own, on the image, mounted for it alone.
    fn suite_child(
        &self,
        suite: &dyn Suite,
        engine: Engine,
        limit: &MemoryLimit,
        phase: Phase,
    ) -> Result<Vec<Figure>> {
        let mounted = Mounted::new(&self.scratch.join("image"), &self.dir, self.teardown)?;
        let task = SuiteTask {
            engine,
            suite: suite.name().to_owned(),
            scale: self.scale,
            memory_bytes: self.memory_bytes,
            data_bytes: self.data_bytes,
            step: self.step,
            phase,
            dir: self.dir.clone(),
            device: mounted.device().to_owned(),
        };
        let child = limit.within(|| bench_harness::child::start(SUITE_CHILD))?;
        bench_harness::child::finish(child, &task, self.teardown).with_context(|| format!("{phase:?}"))
    }
}

/// The rounds of an engine among the results of all measurements.
fn samples_of<'a>(
    all: &'a mut Vec<Results>,
    limit: &MemoryLimit,
    name: &str,
    about: &str,
    engine: &str,
) -> &'a mut Samples {
    let place = all.iter().position(|results| results.workload == name).unwrap_or_else(|| {
        all.push(Results {
            workload: name.to_owned(),
            about: about.to_owned(),
            operations: None,
            memory_bytes: limit.memory_bytes(),
            engines: Vec::new(),
        });
        all.len() - 1
    });
    let engines = &mut all[place].engines;
    let place = engines.iter().position(|samples| samples.engine == engine).unwrap_or_else(|| {
        engines.push(Samples { engine: engine.to_owned(), rounds: Vec::new(), failure: None });
        engines.len() - 1
    });
    &mut engines[place]
}
