//! One figure: the median time of each system as a bar, with its spread.

use anyhow::Result;
use bench_harness::disk::DiskKind;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, VPos};

use super::{OUR_COLOR, name_of, svg, text};
use crate::report::Figure;
use crate::system::OURS;

const SIZE: (u32, u32) = (640, 400);
const PEER_COLOR: RGBColor = RGBColor(150, 160, 175);
/// Half the width of a bar, as a part of its place.
const HALF_BAR: f64 = 0.32;
/// Half the width of the ends of a spread.
const HALF_WHISKER: f64 = 0.08;

/// The figure as SVG.
pub fn draw(figure: &Figure, disk: DiskKind) -> Result<String> {
    svg(SIZE, |area| {
        let top = figure.rows.iter().map(|row| row.max_seconds).fold(0.0, f64::max) * 1.15;
        let places = 0.0..figure.rows.len() as f64;
        let mut chart = ChartBuilder::on(area)
            .caption(format!("{} ({})", figure.about, name_of(disk)), ("sans-serif", 16))
            .margin(12)
            .x_label_area_size(30)
            .y_label_area_size(56)
            .build_cartesian_2d(places, 0.0..top)?;
        let mesh = &mut chart.configure_mesh();
        mesh.disable_x_mesh().disable_x_axis().y_desc("seconds until durable").y_max_light_lines(0);
        mesh.draw()?;
        for (row, number) in figure.rows.iter().zip(0..) {
            let middle = f64::from(number) + 0.5;
            let color = if row.system == OURS { OUR_COLOR } else { PEER_COLOR };
            let corners = [(middle - HALF_BAR, 0.0), (middle + HALF_BAR, row.median_seconds)];
            chart.draw_series([Rectangle::new(corners, color.filled())])?;
            let (least, most) = (row.min_seconds, row.max_seconds);
            let spread = [
                vec![(middle, least), (middle, most)],
                vec![(middle - HALF_WHISKER, least), (middle + HALF_WHISKER, least)],
                vec![(middle - HALF_WHISKER, most), (middle + HALF_WHISKER, most)],
            ];
            chart.draw_series(spread.map(|line| PathElement::new(line, BLACK)))?;
            let label = match row.times_best_peer {
                Some(times) => format!("{} ({times:.2} × best peer)", row.system),
                None => row.system.clone(),
            };
            let (x, _) = chart.backend_coord(&(middle, 0.0));
            let below = (x, SIZE.1 as i32 - 32);
            area.draw_text(&label, &text(12, HPos::Center, VPos::Top), below)?;
        }
        Ok(())
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::Row;

    #[test]
    fn a_plot_names_what_was_measured_and_draws_a_bar_for_each() {
        let row = |system: &str, seconds| Row {
            system: system.to_owned(),
            median_seconds: seconds,
            min_seconds: seconds / 2.0,
            max_seconds: seconds * 2.0,
            times_best_peer: Some(3.0 / seconds),
            rounds: Vec::new(),
        };
        let rows = vec![row("ext4", 3.0), row(OURS, 1.5)];
        let figure = Figure { workload: "work".into(), about: "work hard".into(), memory_bytes: None, rows };
        let svg = draw(&figure, DiskKind::Hdd).unwrap();
        for text in ["work hard (hdd)", "ext4 (1.00 × best peer)", "BetrFS (2.00 × best peer)"] {
            assert!(svg.contains(text), "{text} is not in {svg}");
        }
        for color in ["#1F77B4", "#96A0AF"] {
            assert_eq!(svg.matches(color).count(), 1, "{color}: {svg}");
        }
    }
}
