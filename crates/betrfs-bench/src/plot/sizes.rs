//! The cost of renames, clones and deletes by size.

use std::collections::BTreeMap;

use anyhow::Result;
use bench_harness::disk::DiskKind;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, VPos};

use super::{color_of, svg, text};
use crate::report::Report;

const SIZE: (u32, u32) = (960, 380);
/// The least and the most time of the axis, in milliseconds.
const MS: (f64, f64) = (0.3, 30_000.0);

/// An operation, and its workloads by their sizes.
struct Panel {
    title: &'static str,
    unit: &'static str,
    /// The least and the most size of the axis.
    sizes: (f64, f64),
    /// The size in a workload's name.
    size_of: fn(&str) -> Option<f64>,
}

/// A number at the end of a name, if the rest is `stem`.
fn numbered(name: &str, stem: &str) -> Option<f64> {
    name.strip_prefix(stem)?.parse().ok()
}

const PANELS: [Panel; 3] = [
    Panel {
        title: "rename a directory",
        unit: "files in it",
        sizes: (0.5, 200_000.0),
        size_of: |name| numbered(name, "rename-dir-"),
    },
    Panel {
        title: "clone a directory",
        unit: "files in it (64 of 4 MiB; Linux 6.1)",
        sizes: (10.0, 200_000.0),
        size_of: |name| match name {
            "clone-dir" => Some(64.0),
            "clone-tree" => Some(78_626.0),
            _ => None,
        },
    },
    Panel {
        title: "delete a file",
        unit: "GiB in it",
        sizes: (0.5, 200.0),
        size_of: |name| numbered(name, "delete-large-"),
    },
];

/// The picture as SVG.
pub fn draw(reports: &[Report]) -> Result<String> {
    svg(SIZE, |area| {
        let (head, body) = area.split_vertically(34);
        let style = text(15, HPos::Left, VPos::Center);
        head.draw_text("Time by size, on the fast disk", &style, (14, 18))?;
        for (system, number) in ["ext4", "XFS", "Btrfs", "BetrFS"].into_iter().zip(0..) {
            let x = 420 + number * 120;
            head.draw(&PathElement::new([(x, 18), (x + 24, 18)], color_of(system).stroke_width(3)))?;
            head.draw_text(system, &text(13, HPos::Left, VPos::Center), (x + 32, 18))?;
        }
        for (panel, place) in PANELS.iter().zip(body.split_evenly((1, PANELS.len()))) {
            let mut chart = ChartBuilder::on(&place)
                .caption(panel.title, ("sans-serif", 14))
                .margin(10)
                .x_label_area_size(40)
                .y_label_area_size(56)
                .build_cartesian_2d((panel.sizes.0..panel.sizes.1).log_scale(), (MS.0..MS.1).log_scale())?;
            chart
                .configure_mesh()
                .x_desc(panel.unit)
                .y_desc("milliseconds until durable")
                .x_max_light_lines(0)
                .y_max_light_lines(0)
                .x_labels(6)
                .x_label_formatter(&|size| format!("{size:.0}"))
                .y_label_formatter(&|ms| format!("{ms:.0}"))
                .draw()?;
            for (system, points) in lines_of(panel, reports) {
                let color = color_of(&system);
                chart.draw_series([PathElement::new(points.clone(), color.stroke_width(2))])?;
                chart.draw_series(points.into_iter().map(|point| Circle::new(point, 3, color.filled())))?;
            }
        }
        Ok(())
    })
}

/// The points of each system, by size: size and milliseconds.
fn lines_of(panel: &Panel, reports: &[Report]) -> BTreeMap<String, Vec<(f64, f64)>> {
    let mut lines: BTreeMap<String, Vec<(f64, f64)>> = BTreeMap::new();
    for figure in
        reports.iter().filter(|report| report.disk == DiskKind::Fast).flat_map(|report| &report.figures)
    {
        let Some(size) = (panel.size_of)(&figure.workload) else { continue };
        for row in &figure.rows {
            let line = lines.entry(row.system.clone()).or_default();
            if line.iter().all(|(other, _)| *other != size) {
                line.push((size, row.median_seconds * 1e3));
            }
        }
    }
    lines.values_mut().for_each(|line| line.sort_by(|one, other| one.0.total_cmp(&other.0)));
    lines
}
