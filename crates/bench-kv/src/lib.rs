//! The engine alone and the store over it beside other key-value stores, on one disk under one memory limit.
//!
//! Each phase of a workload on a store (the load, the timed run, the check) is a process of its own in a
//! memory cgroup that the data outgrows. Rounds are interleaved: each store in turn, then the next round. All
//! caches are cold when a run begins. A suite has several measurements in one process: see [`suites`].
#![deny(unsafe_code)]
#![cfg_attr(not(feature = "lmdb"), forbid(unsafe_code))]

mod child;
mod data;
mod drive;
mod image;
mod meter;
mod records;
mod report;
mod sample;
mod stores;
mod suite_rounds;
mod suites;
mod workloads;
mod zipfian;

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use bench_harness::memory_limit::MemoryLimit;
use bench_harness::output::{print, tell};
use bench_harness::scale::{Format, Scale};
use bench_harness::teardown::Teardown;
use bench_harness::touch;
use clap::ValueEnum;

use child::{Phase, Task};
use image::Mounted;
use sample::{Results, Sample, Samples};
use stores::Engine;
use suites::Suite;
use workloads::Workload;

/// The name for all these workloads; their own names begin with it.
pub const ALL: &str = "kv";
/// The argument with which this program runs itself for a phase; its `main` calls [`run_child`] then.
pub const CHILD: &str = "kv-child";
/// The argument with which it runs itself for a phase of a suite.
pub const SUITE_CHILD: &str = "kv-suite-child";
/// How long a round may take before it counts as hung.
const TIME_MAX: Duration = Duration::from_secs(30 * 60);
/// How long a run may take before it is cut short; the rate is then that of the operations done.
const RUN_SECONDS_MAX: u64 = 60;
/// How long a measurement of a suite takes that is only to show that everything works.
const TINY_STEP: Duration = Duration::from_millis(20);

/// The options of these workloads alone.
#[derive(clap::Args)]
pub struct Choice {
    /// For kv workloads: only these engines; the others are compared with the first
    #[arg(long, value_enum)]
    engine: Vec<Engine>,
    /// For kv workloads: the memory limit in MiB
    #[arg(long, default_value_t = 256, value_parser = clap::value_parser!(u64).range(64..))]
    kv_memory_mib: u64,
    /// For kv workloads at full scale: how much data, in MiB [default: four times the memory]
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..))]
    kv_data_mib: Option<u64>,
    /// For suites of kv workloads: how long each measurement takes, in milliseconds
    #[arg(long, default_value_t = 1000, value_parser = clap::value_parser!(u64).range(1..))]
    kv_step_ms: u64,
}

impl Choice {
    fn engines(&self) -> Vec<Engine> {
        if self.engine.is_empty() { Engine::value_variants().to_vec() } else { self.engine.clone() }
    }

    fn memory_bytes(&self) -> u64 {
        self.kv_memory_mib << 20
    }

    fn data_bytes(&self, scale: Scale) -> u64 {
        scale.pick(16, self.kv_data_mib.unwrap_or(self.kv_memory_mib * 4)) << 20
    }

    fn step(&self, scale: Scale) -> Duration {
        scale.pick(TINY_STEP, Duration::from_millis(self.kv_step_ms))
    }

    fn suites(&self, scale: Scale) -> Vec<Box<dyn Suite>> {
        suites::all(scale, self.memory_bytes(), self.data_bytes(scale))
    }
}

/// The workloads to run, and their environment.
pub struct Settings<'a> {
    /// [`ALL`], or names of workloads, separated by commas.
    pub what: &'a str,
    /// How much each workload does.
    pub scale: Scale,
    /// How often each workload runs on each engine.
    pub rounds: u32,
    /// How to print the results.
    pub format: Format,
    /// The options of these workloads.
    pub choice: &'a Choice,
    /// A directory for files.
    pub scratch: &'a Path,
    /// Cleans up.
    pub teardown: &'a Teardown,
}

/// Whether an argument of the command line names these workloads.
pub fn is_named(what: &str) -> bool {
    what == ALL || what.starts_with("kv-")
}

/// Prints the workloads.
///
/// # Errors
/// They cannot be printed.
pub fn list(scale: Scale, choice: &Choice) -> Result<()> {
    let workloads = workloads::all(scale, choice.data_bytes(scale));
    workloads.iter().try_for_each(|each| print(format_args!("{:<22}{}", each.name(), each.about())))?;
    let suites = choice.suites(scale);
    suites.iter().try_for_each(|each| print(format_args!("{:<22}{}", each.name(), each.about())))
}

/// Runs the phase described on standard input.
///
/// # Errors
/// Those of the store, or of a check.
pub fn run_child() -> Result<()> {
    bench_harness::child::serve(child::run)
}

/// Runs the phase of a suite described on standard input.
///
/// # Errors
/// Those of the store, or of a check.
pub fn run_suite_child() -> Result<()> {
    bench_harness::child::serve(suite_rounds::SuiteTask::run)
}

/// Runs the workloads and prints their results. Each database that they read or change is loaded once.
///
/// # Errors
/// A workload is unknown, or failed on an engine.
pub fn run(settings: &Settings<'_>) -> Result<()> {
    let &Settings { what, scale, rounds, format, choice, scratch, teardown } = settings;
    let data_bytes = choice.data_bytes(scale);
    let (mut workloads, mut suites) = (workloads::all(scale, data_bytes), choice.suites(scale));
    if what != ALL {
        let named: Vec<&str> = what.split(',').collect();
        let known = workloads.iter().map(|workload| workload.name());
        let known: Vec<&str> = known.chain(suites.iter().map(|suite| suite.name())).collect();
        if let Some(unknown) = named.iter().find(|name| !known.contains(name)) {
            bail!("there is no workload `{unknown}`: `betrfs-bench list` names them");
        }
        workloads.retain(|workload| named.contains(&workload.name()));
        suites.retain(|suite| named.contains(&suite.name()));
    }
    let dir = scratch.join("mounted");
    std::fs::create_dir(&dir)?;
    let bench = Bench {
        scale,
        memory_bytes: choice.memory_bytes(),
        data_bytes,
        step: choice.step(scale),
        engines: choice.engines(),
        scratch,
        dir,
        teardown,
    };
    let mut results = Vec::new();
    for workload in &workloads {
        results.push(bench.measure(&**workload, rounds)?);
    }
    for suite in &suites {
        results.extend(bench.measure_suite(&**suite, rounds)?);
    }
    report::print(&results, format)?;
    let failures = results.iter().flat_map(|result| &result.engines).filter(|all| all.failure.is_some());
    match failures.count() {
        0 => Ok(()),
        count => bail!("{count} of the workloads above failed on an engine"),
    }
}

/// The settings of all workloads.
struct Bench<'r> {
    scale: Scale,
    memory_bytes: u64,
    data_bytes: u64,
    step: Duration,
    engines: Vec<Engine>,
    scratch: &'r Path,
    /// Where images are mounted.
    dir: PathBuf,
    teardown: &'r Teardown,
}

impl Bench<'_> {
    fn limit(&self, memory_bytes: u64) -> Result<MemoryLimit> {
        // The tiny scale only shows that everything works: it needs no limit.
        MemoryLimit::new(memory_bytes, self.scale == Scale::Tiny, self.teardown)
    }

    /// Rounds of a workload on each engine in turn.
    fn measure(&self, workload: &dyn Workload, rounds: u32) -> Result<Results> {
        let limit = self.limit(self.memory_bytes)?;
        let mut all: Vec<(Engine, Samples)> = self
            .engines
            .iter()
            .filter(|engine| engine.is_workload_engine() && workload.suits(**engine))
            .map(|engine| (*engine, Samples { engine: engine.name(), rounds: Vec::new(), failure: None }))
            .collect();
        for round in 0..rounds {
            for (engine, samples) in all.iter_mut().filter(|(_, samples)| samples.failure.is_none()) {
                let name = format!("{} on {}", workload.name(), engine.name());
                let _watched = self.teardown.watch(&name, TIME_MAX);
                match self.round(workload, *engine, &limit, round == 0) {
                    Ok(sample) => {
                        let per_second = sample.operations as f64 / sample.seconds;
                        let written_mib = sample.device_write_bytes >> 20;
                        tell(format_args!(
                            "{name}, round {}: {per_second:.0}/s, {written_mib} MiB written",
                            round + 1
                        ));
                        samples.rounds.push(sample);
                    }
                    Err(error) => {
                        tell(format_args!("{name}, round {}: {error:#}", round + 1));
                        samples.failure = Some(format!("{error:#}"));
                    }
                }
            }
        }
        Ok(Results {
            workload: workload.name().to_owned(),
            about: workload.about(),
            operations: Some(workload.operations()),
            memory_bytes: limit.memory_bytes(),
            engines: all.into_iter().map(|(_, samples)| samples).collect(),
        })
    }

    fn round(
        &self,
        workload: &dyn Workload,
        engine: Engine,
        limit: &MemoryLimit,
        is_first: bool,
    ) -> Result<Sample> {
        let loaded = match workload.is_preloaded() {
            true => Some(self.loaded(workload, engine, limit)?),
            false => None,
        };
        let image = match &loaded {
            Some(loaded) if !workload.writes() => loaded.clone(),
            loaded => {
                let image = self.scratch.join("image");
                match loaded {
                    Some(loaded) => image::copy(loaded, &image)?,
                    None => image::make(&image, self.image_bytes(self.data_bytes))?,
                }
                image
            }
        };
        let seconds_max = self.scale.pick(60, RUN_SECONDS_MAX);
        if self.scale != Scale::Tiny {
            touch::touch(self.memory_bytes)?;
        }
        let sample = self.child(workload, engine, limit, &image, Phase::Run(seconds_max))?;
        ensure!(sample.operations > 0 && sample.seconds > 0.0, "nothing was done");
        if is_first && workload.writes() {
            self.child(workload, engine, limit, &image, Phase::Check(sample.operations))?;
        }
        if workload.writes() {
            std::fs::remove_file(&image)?;
        }
        Ok(sample)
    }

    /// The image of a database with all pairs, made when it is first needed.
    fn loaded(&self, workload: &dyn Workload, engine: Engine, limit: &MemoryLimit) -> Result<PathBuf> {
        let engine = engine.family();
        let image = self.scratch.join(format!("{}.loaded", engine.name()));
        if !image.exists() {
            let unfinished = self.scratch.join("image");
            image::make(&unfinished, self.image_bytes(self.data_bytes))?;
            self.child(workload, engine, limit, &unfinished, Phase::Load)?;
            std::fs::rename(&unfinished, &image)?;
        }
        Ok(image)
    }

    /// The size of an image: room for engines that keep stale data for long.
    fn image_bytes(&self, data_bytes: u64) -> u64 {
        data_bytes * 6 + (1 << 30)
    }

    /// Runs a phase in a process of its own, on an image that is mounted for it alone.
    fn child(
        &self,
        workload: &dyn Workload,
        engine: Engine,
        limit: &MemoryLimit,
        image: &Path,
        phase: Phase,
    ) -> Result<Sample> {
        let mounted = Mounted::new(image, &self.dir, self.teardown)?;
        let task = Task {
            engine,
            workload: workload.name().to_owned(),
            scale: self.scale,
            memory_bytes: self.memory_bytes,
            data_bytes: self.data_bytes,
            phase,
            dir: self.dir.clone(),
            device: mounted.device().to_owned(),
        };
        let child = limit.within(|| bench_harness::child::start(CHILD))?;
        bench_harness::child::finish(child, &task, self.teardown).with_context(|| format!("{phase:?}"))
    }
}
