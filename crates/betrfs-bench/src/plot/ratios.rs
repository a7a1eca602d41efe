//! All ratios in one picture: each workload a row, each disk a dot, on a logarithmic axis.

use std::collections::HashMap;

use anyhow::Result;
use bench_harness::disk::DiskKind;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, VPos};

use super::{OUR_COLOR, short, svg, text};
use crate::report::Report;
use crate::system::OURS;

const WIDTH: u32 = 900;
const ROW_HEIGHT: u32 = 17;
const TOP: i32 = 64;
const BOTTOM: u32 = 40;
/// Where the axis begins and ends, in pixels from the left.
const AXIS: (i32, i32) = (170, 860);
/// The smallest and the largest power of ten on the axis.
const DECADES: (i32, i32) = (-1, 4);
const HDD_COLOR: RGBColor = RGBColor(203, 75, 22);
const GRID_COLOR: RGBColor = RGBColor(225, 228, 232);

/// Workloads that are left out, because a peer has a faster way that another workload measures: of a tree
/// `cp --reflink` copies file by file, and `clone-tree-snapshot` has Btrfs make a snapshot.
const LEFT_OUT: [&str; 1] = ["clone-tree"];

/// The speed of BetrFS relative to the best peer.
#[derive(Default)]
struct Ratio {
    fast: Option<f64>,
    hdd: Option<f64>,
}

impl Ratio {
    fn is_of_one_disk(&self) -> bool {
        self.fast.is_none() || self.hdd.is_none()
    }
}

/// The picture as SVG.
pub fn draw(reports: &[Report]) -> Result<String> {
    let mut rows: Vec<(&str, Ratio)> = Vec::new();
    let mut places: HashMap<&str, usize> = HashMap::new();
    for (report, figure) in reports.iter().flat_map(|report| report.figures.iter().map(move |f| (report, f)))
    {
        let Some(times) = figure.row(OURS).and_then(|row| row.times_best_peer) else { continue };
        if LEFT_OUT.contains(&figure.workload.as_str()) {
            continue;
        }
        let place = *places.entry(&figure.workload).or_insert_with(|| {
            rows.push((&figure.workload, Ratio::default()));
            rows.len() - 1
        });
        if let Some((_, ratio)) = rows.get_mut(place) {
            let of_disk = match report.disk {
                DiskKind::Fast => &mut ratio.fast,
                DiskKind::Hdd => &mut ratio.hdd,
            };
            of_disk.get_or_insert(times);
        }
    }
    let key = |ratio: &Ratio| ratio.hdd.or(ratio.fast).unwrap_or(0.0);
    rows.sort_by(|(_, one), (_, other)| key(other).total_cmp(&key(one)));
    let height = TOP as u32 + rows.len() as u32 * ROW_HEIGHT + BOTTOM;
    let bottom = (height - BOTTOM) as i32;
    svg((WIDTH, height), |area| {
        area.draw_text(
            "Speed of BetrFS relative to the best of ext4, XFS and Btrfs",
            &text(17, HPos::Left, VPos::Center),
            (AXIS.0, 18),
        )?;
        for (at, color, label) in
            [(AXIS.0 + 6, OUR_COLOR, "fast disk"), (AXIS.0 + 110, HDD_COLOR, "emulated 7200 rpm disk")]
        {
            area.draw(&Circle::new((at, 42), 5, color.filled()))?;
            area.draw_text(label, &text(13, HPos::Left, VPos::Center), (at + 12, 42))?;
        }
        for decade in DECADES.0..=DECADES.1 {
            let (times, x) = (10_f64.powi(decade), x_of(10_f64.powi(decade)));
            let color = if decade == 0 { BLACK } else { GRID_COLOR };
            area.draw(&PathElement::new([(x, TOP - 4), (x, bottom)], color))?;
            let label = if decade < 0 { format!("{times} ×") } else { format!("{times:.0} ×") };
            area.draw_text(&label, &text(12, HPos::Center, VPos::Top), (x, bottom + 6))?;
        }
        for ((workload, ratio), number) in rows.iter().zip(0..) {
            let y = TOP + number * ROW_HEIGHT as i32 + ROW_HEIGHT as i32 / 2;
            area.draw(&PathElement::new([(AXIS.0, y), (AXIS.1, y)], GRID_COLOR))?;
            area.draw_text(workload, &text(12, HPos::Right, VPos::Center), (AXIS.0 - 10, y))?;
            let dots = [(ratio.fast, OUR_COLOR), (ratio.hdd, HDD_COLOR)];
            let right = dots.iter().filter_map(|(times, _)| *times).fold(0.0, f64::max);
            for (times, color) in dots.into_iter().filter_map(|(times, color)| Some((times?, color))) {
                area.draw(&Circle::new((x_of(times), y), 5, color.filled()))?;
                // On the outer side of each dot, and away from the line of 1.
                let (anchor, by) = if times < right || (right < 1.0 && ratio.is_of_one_disk()) {
                    (HPos::Right, -9)
                } else {
                    (HPos::Left, 9)
                };
                let label = text(11, anchor, VPos::Center).color(&color);
                area.draw_text(&format!("{} ×", short(times)), &label, (x_of(times) + by, y))?;
            }
        }
        Ok(())
    })
}

/// The place of a ratio on the axis, in pixels from the left.
fn x_of(times: f64) -> i32 {
    let share = (times.log10() - f64::from(DECADES.0)) / f64::from(DECADES.1 - DECADES.0);
    AXIS.0 + (share.clamp(0.0, 1.0) * f64::from(AXIS.1 - AXIS.0)) as i32
}
