//! The engine alone beside other key-value stores, on one disk under one memory limit.
//!
//! Each phase of a workload on an engine (filling it, the run that is timed, the check) is a process
//! of its own in a memory cgroup that the data outgrows. Rounds are interleaved: each engine in turn,
//! then the next round. What is in memory, in files and on the device is cold when a run begins.

pub mod child;
mod data;
mod disk;
mod report;
mod stores;
mod workloads;

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use betree_std::ALLOCATOR;
use clap::ValueEnum;
use rustix::process::Pid;
use serde::Serialize;

use crate::backing;
use crate::confine::Confinement;
use crate::output::{print, tell};
use crate::teardown::Teardown;
use crate::{Arguments, Scale};
use child::{Phase, Sample, Task};
use disk::Mounted;
use stores::Engine;
use workloads::Workload;

/// The name that stands for all workloads of this kind; each one's own begins with it.
pub const ALL: &str = "kv";
/// By this name this program runs itself.
pub const CHILD: &str = "kv-child";
/// After this long a child is taken to hang.
const TIME_MAX: Duration = Duration::from_secs(30 * 60);
/// A run is cut short after this long, and the rate is that of what it has done.
const RUN_SECONDS_MAX: u64 = 60;
/// What is said on the command line of engines alone.
#[derive(clap::Args)]
pub struct Choice {
    /// For kv workloads: only these engines; the first is what others are compared with
    #[arg(long, value_enum)]
    engine: Vec<Engine>,
    /// For kv workloads: the memory limit in MiB
    #[arg(long, default_value_t = 256, value_parser = clap::value_parser!(u64).range(64..))]
    kv_memory_mib: u64,
    /// For kv workloads at full scale: how much data, in MiB [default: four times the memory]
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..))]
    kv_data_mib: Option<u64>,
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
}

/// All rounds of a workload on one engine.
#[derive(Debug, Serialize)]
struct Samples {
    contender: String,
    rounds: Vec<Sample>,
    /// Why there are no more rounds, if one failed.
    failure: Option<String>,
}

/// A workload's results.
#[derive(Debug, Serialize)]
struct Results {
    workload: &'static str,
    about: String,
    operations: u64,
    /// The memory that a store had with its page cache, if it was limited.
    memory_bytes: Option<u64>,
    contenders: Vec<Samples>,
}

/// Whether a name on the command line is one of these.
pub fn is_named(what: &str) -> bool {
    what == ALL || what.starts_with("kv-")
}

/// Says what there is.
pub fn list(scale: Scale, choice: &Choice) -> Result<()> {
    let workloads = workloads::all(scale, choice.data_bytes(scale));
    workloads.iter().try_for_each(|each| print(format_args!("{:<22}{}", each.name(), each.about())))
}

/// Runs all workloads, or those that are named, with commas between them. The databases that they work
/// on are filled once.
pub fn run(arguments: &Arguments, scratch: &Path, teardown: &Teardown) -> Result<()> {
    let data_bytes = arguments.kv.data_bytes(arguments.scale);
    let mut chosen = workloads::all(arguments.scale, data_bytes);
    if arguments.what != ALL {
        let named: Vec<&str> = arguments.what.split(',').collect();
        let unknown = named.iter().find(|name| chosen.iter().all(|workload| workload.name() != **name));
        if let Some(unknown) = unknown {
            bail!("there is no workload `{unknown}`: `betrfs-bench list` names them");
        }
        chosen.retain(|workload| named.contains(&workload.name()));
    }
    let dir = scratch.join("mounted");
    std::fs::create_dir(&dir)?;
    // What is small needs no limit: it is there to see that everything works.
    let may_be_unlimited = arguments.scale == Scale::Tiny;
    let confinement = Confinement::new(arguments.kv.memory_bytes(), may_be_unlimited, teardown)?;
    let bench = Bench {
        scale: arguments.scale,
        memory_bytes: arguments.kv.memory_bytes(),
        data_bytes,
        confinement: &confinement,
        engines: arguments.kv.engines(),
        scratch,
        dir,
        teardown,
    };
    let results: Vec<Results> =
        chosen.iter().map(|workload| bench.measure(&**workload, arguments.rounds)).collect();
    report::print(&results, arguments.format)?;
    let failures = results.iter().flat_map(|result| &result.contenders).filter(|all| all.failure.is_some());
    match failures.count() {
        0 => Ok(()),
        count => bail!("{count} of the workloads above failed on an engine"),
    }
}

/// What all workloads share.
struct Bench<'r> {
    scale: Scale,
    memory_bytes: u64,
    data_bytes: u64,
    confinement: &'r Confinement,
    engines: Vec<Engine>,
    scratch: &'r Path,
    /// Where the image at work is mounted.
    dir: PathBuf,
    teardown: &'r Teardown,
}

impl Bench<'_> {
    /// Rounds of a workload on each engine in turn.
    fn measure(&self, workload: &dyn Workload, rounds: u32) -> Results {
        let mut all: Vec<(Engine, Samples)> = self
            .engines
            .iter()
            .filter(|engine| workload.suits(**engine))
            .map(|engine| (*engine, Samples { contender: engine.name(), rounds: Vec::new(), failure: None }))
            .collect();
        for round in 0..rounds {
            for (engine, samples) in all.iter_mut().filter(|(_, samples)| samples.failure.is_none()) {
                let name = format!("{} on {}", workload.name(), engine.name());
                let _watched = self.teardown.watch(&name, TIME_MAX);
                match self.round(workload, *engine, round == 0) {
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
        Results {
            workload: workload.name(),
            about: workload.about(),
            operations: workload.operations(),
            memory_bytes: self.confinement.memory_bytes(),
            contenders: all.into_iter().map(|(_, samples)| samples).collect(),
        }
    }

    fn round(&self, workload: &dyn Workload, engine: Engine, is_first: bool) -> Result<Sample> {
        let loaded = match workload.is_preloaded() {
            true => Some(self.loaded(workload, engine)?),
            false => None,
        };
        let image = match &loaded {
            Some(loaded) if !workload.writes() => loaded.clone(),
            loaded => {
                let image = self.scratch.join("image");
                match loaded {
                    Some(loaded) => disk::copy(loaded, &image)?,
                    None => disk::make(&image, self.image_bytes())?,
                }
                image
            }
        };
        let seconds_max = self.scale.pick(60, RUN_SECONDS_MAX);
        if self.scale != Scale::Tiny {
            backing::touch(self.memory_bytes)?;
        }
        let sample = self.child(workload, engine, &image, Phase::Run(seconds_max))?;
        ensure!(sample.operations > 0 && sample.seconds > 0.0, "nothing was done");
        if is_first && workload.writes() {
            self.child(workload, engine, &image, Phase::Check(sample.operations))?;
        }
        if workload.writes() {
            std::fs::remove_file(&image)?;
        }
        Ok(sample)
    }

    /// The image of a database of all pairs, made when it is first asked for.
    fn loaded(&self, workload: &dyn Workload, engine: Engine) -> Result<PathBuf> {
        let engine = engine.family();
        let image = self.scratch.join(format!("{}.loaded", engine.name()));
        if !image.exists() {
            let unfinished = self.scratch.join("image");
            disk::make(&unfinished, self.image_bytes())?;
            self.child(workload, engine, &unfinished, Phase::Load)?;
            std::fs::rename(&unfinished, &image)?;
        }
        Ok(image)
    }

    /// Room for engines that keep much of what they no longer need.
    fn image_bytes(&self) -> u64 {
        self.data_bytes * 6 + (1 << 30)
    }

    /// Runs a phase in a child, on an image that is mounted for it alone.
    fn child(&self, workload: &dyn Workload, engine: Engine, image: &Path, phase: Phase) -> Result<Sample> {
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
        let mut child = self.confinement.within(|| {
            let mut command = Command::new(std::env::current_exe()?);
            Ok(command.arg(CHILD).envs(ALLOCATOR).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?)
        })?;
        let pid = Pid::from_child(&child);
        self.teardown.started(pid);
        let sent = child
            .stdin
            .take()
            .map(|mut stdin| stdin.write_all(&serde_json::to_vec(&task)?).map_err(anyhow::Error::from));
        let output = child.wait_with_output();
        self.teardown.ended(pid);
        let output = output?;
        ensure!(output.status.success(), "{phase:?}: the child ended with {}", output.status);
        sent.transpose()?;
        serde_json::from_slice(&output.stdout).context("the child printed what is not expected")
    }
}
