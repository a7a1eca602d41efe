//! The picture as SVG text.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::path::Path;

use betrfs_fuse::{Content, Layout};
use jiff::Timestamp;

use crate::size;

/// The number of cells in a row.
const ROW: usize = 64;
/// The most cells: 48 rows.
pub const CELLS_MAX: u32 = ROW as u32 * 48;
/// The first bytes of each picture.
pub const PICTURE_BEGIN: &str = "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<svg ";
/// Sizes in pixels.
const CELL: usize = 12;
const MARGIN: usize = 16;
const LINE: usize = 18;
const TOP: usize = 64;
/// The columns of the legend.
const COLUMNS: usize = 2;
const WIDTH: usize = 2 * MARGIN + ROW * CELL;

/// A directory of the root.
pub struct Directory {
    name: String,
    stored_bytes: u64,
    shared_bytes: u64,
}

impl Directory {
    /// A directory with what is stored below it, and the part that others share.
    pub fn new(name: &OsStr, stored_bytes: u64, shared_bytes: u64) -> Directory {
        Directory { name: name.to_string_lossy().into_owned(), stored_bytes, shared_bytes }
    }
}

/// What the picture shows.
pub struct Picture<'a> {
    pub volume: &'a Path,
    /// When it was looked at.
    pub at: Timestamp,
    pub layout: &'a Layout,
    pub directories: &'a [Directory],
}

impl Picture<'_> {
    /// The picture, with as many elements as there are runs of cells of one colour in a row.
    pub fn svg(&self) -> String {
        let sums = self.layout.sums();
        let rows = self.layout.cells.len().div_ceil(ROW);
        let legend_top = TOP + rows * CELL + LINE;
        let directories_top = legend_top + (sums.len().div_ceil(COLUMNS) + 1) * LINE;
        let height = directories_top + (self.directories.len() + 1) * LINE + MARGIN;
        let mut body = String::new();
        self.title(&mut body);
        for (row, cells) in self.layout.cells.chunks(ROW).enumerate() {
            cell_row(cells, row, self.layout.cell_bytes, &mut body);
        }
        legend(&sums, legend_top, &mut body);
        self.directories(directories_top, &mut body);
        format!(
            "{PICTURE_BEGIN}xmlns=\"http://www.w3.org/2000/svg\" width=\"{WIDTH}\" \
             height=\"{height}\" viewBox=\"0 0 {WIDTH} {height}\" font-family=\"sans-serif\" font-size=\"12\">\n\
             <rect width=\"{WIDTH}\" height=\"{height}\" fill=\"#ffffff\"/>\n{body}</svg>\n"
        )
    }

    fn title(&self, out: &mut String) {
        let Layout { label, cell_bytes, .. } = self.layout;
        let volume = escaped(&self.volume.to_string_lossy());
        let name = if label.is_empty() { volume } else { format!("{} ({volume})", escaped(label)) };
        let volume_bytes = self.layout.sums().values().sum();
        let (all, cell) = (size::show(volume_bytes), size::show(*cell_bytes));
        let at = self.at.strftime("%Y-%m-%d %H:%M:%S UTC");
        element(out, "title", "", &name);
        element(out, "text", &format!("x=\"{MARGIN}\" y=\"28\" font-size=\"18\""), &name);
        let below = format!("{all}, a cell is {cell}; looked at {at}");
        element(out, "text", &format!("x=\"{MARGIN}\" y=\"50\""), &below);
    }

    fn directories(&self, top: usize, out: &mut String) {
        let most = self.directories.iter().map(|directory| directory.stored_bytes).max().unwrap_or(0).max(1);
        let room = (WIDTH - 2 * MARGIN) as u64 / 2;
        for (index, Directory { name, stored_bytes, shared_bytes }) in self.directories.iter().enumerate() {
            let y = top + index * LINE;
            let width = |bytes: u64| (u128::from(bytes) * u128::from(room) / u128::from(most)) as u64;
            out.push_str(&format!("<g class=\"directory\" data-stored-bytes=\"{stored_bytes}\" data-shared-bytes=\"{shared_bytes}\">\n"));
            bar(out, (MARGIN, y), (width(*stored_bytes), CELL), "#4292c6", "");
            bar(out, (MARGIN, y), (width(*shared_bytes), CELL), "#fd8d3c", "");
            let (stored, shared) = (size::show(*stored_bytes), size::show(*shared_bytes));
            let text = format!("/{}: {stored} stored, {shared} of it shared", escaped(name));
            element(out, "text", &format!("x=\"{}\" y=\"{}\"", MARGIN + room as usize + 8, y + 10), &text);
            out.push_str("</g>\n");
        }
    }
}

/// Draws a row of cells; neighbours of one colour are one rectangle.
fn cell_row(cells: &[Vec<(Content, u64)>], row: usize, cell_bytes: u64, out: &mut String) {
    let looks: Vec<(Content, u8)> = cells.iter().map(|cell| look(cell, cell_bytes)).collect();
    let mut column = 0;
    for group in looks.chunk_by(|one, next| one == next) {
        if let Some((content, tenths)) = group.first() {
            let opacity = if *tenths < 10 { format!(" fill-opacity=\"0.{tenths}\"") } else { String::new() };
            let more = format!(" class=\"cells\" data-content=\"{}\"{opacity}", name_of(*content).0);
            let at = (MARGIN + column * CELL, TOP + row * CELL);
            bar(out, at, ((group.len() * CELL) as u64, CELL), &colour(*content), &more);
        }
        column += group.len();
    }
}

/// What takes most of a cell beside free space, and how strong it is drawn, in tenths.
fn look(cell: &[(Content, u64)], cell_bytes: u64) -> (Content, u8) {
    let used = cell.iter().filter(|(content, _)| *content != Content::Free);
    let used_bytes: u64 = used.clone().map(|(_, bytes)| bytes).sum();
    let Some((content, _)) = used.max_by_key(|(_, bytes)| *bytes) else { return (Content::Free, 10) };
    match used_bytes * 4 / cell_bytes.max(1) {
        0 => (*content, 4),
        1 => (*content, 6),
        2 => (*content, 8),
        _ => (*content, 10),
    }
}

/// Draws the colours with the bytes of each.
fn legend(sums: &BTreeMap<Content, u64>, top: usize, out: &mut String) {
    for (index, (content, bytes)) in sums.iter().enumerate() {
        let x = MARGIN + index % COLUMNS * (WIDTH - 2 * MARGIN) / COLUMNS;
        let y = top + index / COLUMNS * LINE;
        let (name, words) = name_of(*content);
        out.push_str(&format!("<g class=\"legend\" data-content=\"{name}\" data-bytes=\"{bytes}\">\n"));
        bar(out, (x, y), (CELL as u64, CELL), &colour(*content), " stroke=\"#888888\"");
        let text = format!("{words}: {}", size::show(*bytes));
        element(out, "text", &format!("x=\"{}\" y=\"{}\"", x + CELL + 6, y + 10), &text);
        out.push_str("</g>\n");
    }
}

fn bar(out: &mut String, (x, y): (usize, usize), (width, height): (u64, usize), fill: &str, more: &str) {
    out.push_str(&format!(
        "<rect x=\"{x}\" y=\"{y}\" width=\"{width}\" height=\"{height}\" fill=\"{fill}\"{more}/>\n"
    ));
}

fn element(out: &mut String, name: &str, attributes: &str, text: &str) {
    let space = if attributes.is_empty() { "" } else { " " };
    out.push_str(&format!("<{name}{space}{attributes}>{text}</{name}>\n"));
}

/// The name of a content for programs, and in words.
fn name_of(content: Content) -> (String, String) {
    let of_node = |kind: &str, height: u8, is_shared: bool| {
        let shared = if is_shared { ("-shared", ", shared") } else { ("", "") };
        let place = if height == 0 { "leaves".to_owned() } else { format!("nodes of height {height}") };
        (format!("{kind}-{height}{}", shared.0), format!("{kind}, {place}{}", shared.1))
    };
    let plain = |name: &str, words: &str| (name.to_owned(), words.to_owned());
    match content {
        Content::Superblocks => plain("superblocks", "superblocks"),
        Content::Log => plain("log", "log"),
        Content::Table => plain("table", "node table"),
        Content::TableCopy => plain("table-copy", "second copy of the node table"),
        Content::Metadata { height, is_shared } => of_node("metadata", height, is_shared),
        Content::Data { height, is_shared } => of_node("data", height, is_shared),
        Content::Held => plain("held", "held: earlier versions"),
        Content::Free => plain("free", "free"),
    }
}

/// The colour of a content: a hue for each kind, darker for higher nodes.
fn colour(content: Content) -> String {
    let darker = |[red, green, blue]: [u32; 3], height: u8| {
        let share = 100 - 18 * u32::from(height.min(4));
        format!("#{:02x}{:02x}{:02x}", red * share / 100, green * share / 100, blue * share / 100)
    };
    match content {
        Content::Superblocks => "#d62728".to_owned(),
        Content::Log => "#e6c229".to_owned(),
        Content::Table => "#555555".to_owned(),
        Content::TableCopy => "#aaaaaa".to_owned(),
        Content::Data { height, is_shared: false } => darker([107, 174, 214], height),
        Content::Data { height, is_shared: true } => darker([253, 141, 60], height),
        Content::Metadata { height, is_shared: false } => darker([116, 196, 118], height),
        Content::Metadata { height, is_shared: true } => darker([180, 140, 220], height),
        Content::Held => "#e7cb94".to_owned(),
        Content::Free => "#f4f4f4".to_owned(),
    }
}

/// Text for XML, which has no place for control characters.
fn escaped(text: &str) -> String {
    let mut out = String::new();
    for character in text.chars() {
        match character {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            other if other.is_control() || ['\u{fffe}', '\u{ffff}'].contains(&other) => out.push('\u{fffd}'),
            other => out.push(other),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cell_has_the_colour_of_what_takes_most_of_it_and_is_paler_the_more_is_free() {
        let data = Content::Data { height: 0, is_shared: false };
        let cell = |log, bytes, free| [(Content::Log, log), (data, bytes), (Content::Free, free)];
        for (cell, expected) in [
            (cell(1, 9, 90), (data, 4)),
            (cell(10, 20, 70), (data, 6)),
            (cell(20, 30, 50), (data, 8)),
            (cell(45, 30, 25), (Content::Log, 10)),
        ] {
            assert_eq!(look(&cell, 100), expected);
        }
        assert_eq!(look(&[(Content::Free, 100)], 100), (Content::Free, 10));
        assert_eq!(look(&[], 0), (Content::Free, 10));
    }

    #[test]
    fn texts_are_those_of_xml_whatever_a_label_has() {
        assert_eq!(escaped("a<b> & \"c\""), "a&lt;b&gt; &amp; &quot;c&quot;");
        assert_eq!(escaped("\u{1}é\u{ffff}\u{7f}"), "\u{fffd}é\u{fffd}\u{fffd}");
    }
}
