//! Plots as SVG: one of each figure, and three of whole reports.

mod aging;
mod figure;
mod ratios;
mod sizes;

use std::io;
use std::path::Path;

use anyhow::{Context, Result, anyhow};
use bench_harness::disk::DiskKind;
use plotters::coord::Shift;
use plotters::drawing::DrawingAreaErrorKind;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

use crate::report::Report;
use crate::system::OURS;

const OUR_COLOR: RGBColor = RGBColor(31, 119, 180);

type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;
type Drawn = Result<(), DrawingAreaErrorKind<io::Error>>;

/// Plots each figure of a report into a directory, as WORKLOAD-DISK.svg.
///
/// # Errors
/// The files cannot be written.
pub fn plot_figures(report: &Report, dir: &Path) -> Result<()> {
    std::fs::create_dir_all(dir).with_context(|| format!("cannot make {}", dir.display()))?;
    for figure in &report.figures {
        let name = format!("{}-{}.svg", figure.workload, name_of(report.disk));
        write(&dir.join(name), &figure::draw(figure, report.disk)?)?;
    }
    Ok(())
}

/// Plots whole reports into a directory: all ratios (ratios.svg), the cost by size of renames, clones and
/// deletes (sizes.svg), and aging (aging.svg). For a workload on a disk, the first report with it counts.
///
/// # Errors
/// A report is not readable, or the files cannot be written.
pub fn plot_reports(paths: &[impl AsRef<Path>], dir: &Path) -> Result<()> {
    let read = |path: &Path| -> Result<Report> {
        let report = std::fs::read(path).with_context(|| format!("cannot read {}", path.display()))?;
        serde_json::from_slice(&report).with_context(|| format!("{} is no report", path.display()))
    };
    let reports = paths.iter().map(|path| read(path.as_ref())).collect::<Result<Vec<_>>>()?;
    std::fs::create_dir_all(dir).with_context(|| format!("cannot make {}", dir.display()))?;
    write(&dir.join("ratios.svg"), &ratios::draw(&reports)?)?;
    write(&dir.join("sizes.svg"), &sizes::draw(&reports)?)?;
    write(&dir.join("aging.svg"), &aging::draw(&reports)?)
}

fn write(path: &Path, svg: &str) -> Result<()> {
    std::fs::write(path, svg).with_context(|| format!("cannot write {}", path.display()))
}

fn name_of(disk: DiskKind) -> &'static str {
    match disk {
        DiskKind::Fast => "fast",
        DiskKind::Hdd => "hdd",
    }
}

/// The color of a system's lines.
fn color_of(system: &str) -> RGBColor {
    match system {
        OURS => OUR_COLOR,
        "ext4" => RGBColor(120, 120, 120),
        "XFS" => RGBColor(214, 126, 44),
        _ => RGBColor(86, 160, 90),
    }
}

/// An SVG of a size in pixels.
fn svg(size: (u32, u32), draw: impl FnOnce(&Area<'_>) -> Drawn) -> Result<String> {
    let mut svg = String::new();
    let drawn = {
        let area = SVGBackend::with_string(&mut svg, size).into_drawing_area();
        area.fill(&WHITE).and_then(|()| draw(&area)).and_then(|()| area.present())
    };
    drawn.map_err(|error| anyhow!("cannot draw: {error}"))?;
    Ok(svg)
}

/// A style for text of a size in pixels, at the given place of its point.
fn text(size: u32, horizontal: HPos, vertical: VPos) -> TextStyle<'static> {
    TextStyle::from(("sans-serif", size)).pos(Pos::new(horizontal, vertical))
}

/// A number with as many digits as it needs: 0.31, 4.8, 388.
fn short(number: f64) -> String {
    match number {
        0.0..1.0 => format!("{number:.2}"),
        1.0..10.0 => format!("{number:.1}"),
        _ => format!("{number:.0}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reports_become_three_pictures() {
        let report = |disk, seconds: f64| {
            let row = |system, median: f64| {
                format!(
                    r#"{{"system":"{system}","median_seconds":{median},"min_seconds":{median},
                    "max_seconds":{median},"times_best_peer":{},
                    "rounds":[{{"seconds":{median},"younger_seconds":[0.5],"grown_bytes":null,
                    "unmount_seconds":0,"cpu_seconds":null,"device":{{"reads":0,"writes":0,"flushes":0,
                    "read_bytes":0,"write_bytes":0,"seeks":null}},"server":null}}]}}"#,
                    1.0 / median
                )
            };
            let figure = |workload| {
                let rows = [row("ext4", 1.0), row(OURS, seconds)].join(",");
                format!(r#"{{"workload":"{workload}","about":"work","memory_bytes":null,"rows":[{rows}]}}"#)
            };
            let figures = ["age-git", "rename-dir-1", "rename-dir-1000", "clone-tree", "clone-tree-snapshot"]
                .map(figure)
                .join(",");
            format!(r#"{{"disk":"{disk}","scale":"full","figures":[{figures}]}}"#)
        };
        let dir = tempfile::tempdir().unwrap();
        let (fast, hdd) = (dir.path().join("fast.json"), dir.path().join("hdd.json"));
        std::fs::write(&fast, report("fast", 0.5)).unwrap();
        std::fs::write(&hdd, report("hdd", 0.02)).unwrap();
        plot_reports(&[&fast, &hdd], dir.path()).unwrap();
        let read = |name| std::fs::read_to_string(dir.path().join(name)).unwrap();
        let ratios = read("ratios.svg");
        assert!(ratios.contains("age-git") && ratios.contains("rename-dir-1000"), "{ratios}");
        assert_eq!(ratios.matches("50 ×").count(), 4, "{ratios}");
        assert!(ratios.contains("clone-tree-snapshot") && !ratios.contains("clone-tree\n"), "{ratios}");
        assert!(read("sizes.svg").contains("rename a directory"));
        assert!(read("aging.svg").contains("age-git (hdd)"));
        std::fs::write(&hdd, "no report").unwrap();
        assert!(plot_reports(&[&fast, &hdd], dir.path()).unwrap_err().to_string().contains("hdd.json"));
    }

    #[test]
    fn numbers_have_the_digits_that_they_need() {
        assert_eq!([0.305, 4.77, 388.4].map(short), ["0.30", "4.8", "388"]);
    }
}
