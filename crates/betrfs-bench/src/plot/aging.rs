//! Aging: the time of the same reading, again and again, while a file system grows older.

use anyhow::Result;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, VPos};

use super::{color_of, name_of, short, svg, text};
use crate::report::{Figure, Report, Row};

const PANEL: (u32, u32) = (440, 320);

/// The picture as SVG: a panel for each workload that ages a file system, on each disk.
pub fn draw(reports: &[Report]) -> Result<String> {
    let figures = reports.iter().flat_map(|report| report.figures.iter().map(move |figure| (report, figure)));
    let is_aged = |figure: &Figure| figure.rows.iter().any(|row| series(row).len() > 1);
    let aged: Vec<_> = figures.filter(|(_, figure)| is_aged(figure)).collect();
    svg((PANEL.0 * aged.len().max(1) as u32, PANEL.1 + 34), |area| {
        let (head, body) = area.split_vertically(34);
        for (system, number) in ["ext4", "XFS", "Btrfs", "BetrFS"].into_iter().zip(0..) {
            let x = 20 + number * 100;
            head.draw(&PathElement::new([(x, 18), (x + 24, 18)], color_of(system).stroke_width(3)))?;
            head.draw_text(system, &text(13, HPos::Left, VPos::Center), (x + 32, 18))?;
        }
        for ((report, figure), place) in aged.iter().zip(body.split_evenly((1, aged.len().max(1)))) {
            let seconds = || figure.rows.iter().flat_map(series).map(|(_, seconds)| seconds);
            let (least, most) = (seconds().fold(f64::INFINITY, f64::min), seconds().fold(0.0, f64::max));
            let mut chart = ChartBuilder::on(&place)
                .caption(format!("{} ({})", figure.workload, name_of(report.disk)), ("sans-serif", 14))
                .margin(10)
                .x_label_area_size(40)
                .y_label_area_size(56)
                .build_cartesian_2d(0.0..100.0, (least / 2.0..most * 2.0).log_scale())?;
            chart
                .configure_mesh()
                .x_desc("per cent of the aging done")
                .y_desc("seconds of a cold grep -r")
                .x_max_light_lines(0)
                .y_max_light_lines(0)
                .x_label_formatter(&|share| format!("{share:.0}"))
                .y_label_formatter(&|seconds| short(*seconds))
                .draw()?;
            for row in &figure.rows {
                let color = color_of(&row.system);
                let points = series(row);
                chart.draw_series([PathElement::new(points.clone(), color.stroke_width(2))])?;
                chart.draw_series(points.into_iter().map(|point| Circle::new(point, 3, color.filled())))?;
            }
        }
        Ok(())
    })
}

/// The points of a system: how much of the aging was done, in per cent, and the seconds then.
fn series(row: &Row) -> Vec<(f64, f64)> {
    let Some(last) = row.rounds.last() else { return Vec::new() };
    let seconds = last.younger_seconds.iter().copied().chain([last.seconds]);
    let steps = last.younger_seconds.len().max(1) as f64;
    seconds.zip(0..).map(|(seconds, step)| (f64::from(step) / steps * 100.0, seconds)).collect()
}
