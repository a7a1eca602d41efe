//! A plot of each figure: the median time of each system, with its spread.

use std::path::Path;

use anyhow::{Context, Result, anyhow};
use bench_harness::disk::DiskKind;
use plotters::prelude::*;

use crate::report::{Figure, Report};
use crate::system::OURS;

const SIZE: (u32, u32) = (640, 400);
const PEER_COLOR: RGBColor = RGBColor(150, 160, 175);
const OUR_COLOR: RGBColor = RGBColor(31, 119, 180);
/// Half the width of a bar, as a part of its place.
const HALF_BAR: f64 = 0.32;
/// Half the width of the ends of a spread.
const HALF_WHISKER: f64 = 0.08;

/// Plots all figures of a report into a directory, each as NAME-DISK.svg.
pub fn plot(report: &Report, dir: &Path) -> Result<()> {
    std::fs::create_dir_all(dir).with_context(|| format!("cannot make {}", dir.display()))?;
    let disk = match report.disk {
        DiskKind::Fast => "fast",
        DiskKind::Hdd => "hdd",
    };
    for figure in &report.figures {
        let path = dir.join(format!("{}-{disk}.svg", figure.workload));
        let drawn = draw(figure, disk);
        std::fs::write(&path, drawn?).with_context(|| format!("cannot write {}", path.display()))?;
    }
    Ok(())
}

/// One figure as SVG.
fn draw(figure: &Figure, disk: &str) -> Result<String> {
    let mut svg = String::new();
    {
        // Its errors borrow the drawing area.
        let failed = |error: &dyn std::fmt::Display| anyhow!("cannot plot {}: {error}", figure.workload);
        let area = SVGBackend::with_string(&mut svg, SIZE).into_drawing_area();
        area.fill(&WHITE).map_err(|error| failed(&error))?;
        let top = figure.rows.iter().map(|row| row.max_seconds).fold(0.0, f64::max) * 1.15;
        let places = 0.0..figure.rows.len() as f64;
        let mut chart = ChartBuilder::on(&area)
            .caption(format!("{} ({disk})", figure.about), ("sans-serif", 16))
            .margin(12)
            .x_label_area_size(30)
            .y_label_area_size(56)
            .build_cartesian_2d(places, 0.0..top)
            .map_err(|error| failed(&error))?;
        let mesh = &mut chart.configure_mesh();
        mesh.disable_x_mesh().disable_x_axis().y_desc("seconds until durable").y_max_light_lines(0);
        mesh.draw().map_err(|error| failed(&error))?;
        for (row, number) in figure.rows.iter().zip(0..) {
            let middle = f64::from(number) + 0.5;
            let color = if row.system == OURS { OUR_COLOR } else { PEER_COLOR };
            let corners = [(middle - HALF_BAR, 0.0), (middle + HALF_BAR, row.median_seconds)];
            let bar = std::iter::once(Rectangle::new(corners, color.filled()));
            chart.draw_series(bar).map_err(|error| failed(&error))?;
            let (least, most) = (row.min_seconds, row.max_seconds);
            let spread = [
                vec![(middle, least), (middle, most)],
                vec![(middle - HALF_WHISKER, least), (middle + HALF_WHISKER, least)],
                vec![(middle - HALF_WHISKER, most), (middle + HALF_WHISKER, most)],
            ];
            let spread = spread.map(|line| PathElement::new(line, BLACK));
            chart.draw_series(spread).map_err(|error| failed(&error))?;
            let label = match row.times_best_peer {
                Some(times) => format!("{} ({times:.2} × best peer)", row.system),
                None => row.system.to_owned(),
            };
            let (x, _) = chart.backend_coord(&(middle, 0.0));
            let style = TextStyle::from(("sans-serif", 12)).pos(plotters::style::text_anchor::Pos::new(
                plotters::style::text_anchor::HPos::Center,
                plotters::style::text_anchor::VPos::Top,
            ));
            let below = (x, SIZE.1 as i32 - 32);
            area.draw_text(&label, &style, below).map_err(|error| failed(&error))?;
        }
        area.present().map_err(|error| failed(&error))?;
    }
    Ok(svg)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::Row;

    #[test]
    fn a_plot_names_what_was_measured_and_draws_a_bar_for_each() {
        let row = |system, seconds| Row {
            system,
            median_seconds: seconds,
            min_seconds: seconds / 2.0,
            max_seconds: seconds * 2.0,
            times_best_peer: Some(3.0 / seconds),
            rounds: Vec::new(),
        };
        let rows = vec![row("ext4", 3.0), row(OURS, 1.5)];
        let figure = Figure { workload: "work", about: "work hard".into(), memory_bytes: None, rows };
        let svg = draw(&figure, "hdd").unwrap();
        for text in ["work hard (hdd)", "ext4 (1.00 × best peer)", "BetrFS (2.00 × best peer)"] {
            assert!(svg.contains(text), "{text} is not in {svg}");
        }
        for color in ["#1F77B4", "#96A0AF"] {
            assert_eq!(svg.matches(color).count(), 1, "{color}: {svg}");
        }
    }
}
