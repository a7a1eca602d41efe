//! Text like that of programs: lines that compress about as well as source code.

use std::io::Write as _;

use super::random::Rng;

/// A generated source file: each line is made from a number.
#[derive(Clone, Debug)]
pub struct Source(Vec<u32>);

/// The bytes of a line on average, roughly.
const LINE_BYTES: u64 = 40;

const TYPES: [&str; 8] =
    ["int", "u64", "struct node *", "void", "bool", "const char *", "size_t", "struct inode *"];
const VERBS: [&str; 16] = [
    "get", "put", "find", "insert", "remove", "lock", "unlock", "init", "free", "read", "write", "split",
    "merge", "flush", "walk", "check",
];
const NOUNS: [&str; 16] = [
    "node", "inode", "page", "buffer", "entry", "bucket", "extent", "queue", "list", "tree", "key", "value",
    "device", "cache", "table", "record",
];

impl Source {
    /// A new file of about this number of bytes.
    pub fn new(rng: &mut Rng, about_bytes: u64) -> Source {
        Source((0..about_bytes / LINE_BYTES + 1).map(|_| rng.next_u64() as u32).collect())
    }

    /// Changes it as an author would: a few lines anew, a few more or less, all near each other.
    pub fn edit(&mut self, rng: &mut Rng) {
        let at = rng.below(self.0.len());
        let until = (at + 1 + rng.below(5)).min(self.0.len());
        let new = (0..1 + rng.below_u64(6)).map(|_| rng.next_u64() as u32).collect::<Vec<_>>();
        self.0.splice(at..until, new);
    }

    /// Its text.
    pub fn text(&self) -> Vec<u8> {
        let mut text = Vec::with_capacity(self.0.len() * LINE_BYTES as usize);
        for line in &self.0 {
            let part = |shift: u32, of: usize| (line >> shift) as usize % of;
            let (kind, verb, noun) = (TYPES[part(3, 8)], VERBS[part(6, 16)], NOUNS[part(10, 16)]);
            let number = line >> 14;
            // Writing to memory cannot fail.
            let _ = match line % 8 {
                0 => writeln!(text),
                1 => writeln!(text, "\t/* {verb} the {noun} before the {} {number} */", NOUNS[part(14, 16)]),
                2 => writeln!(text, "static {kind} {noun}_{verb}(struct {noun} *{noun})"),
                3 => writeln!(text, "\tif (!{noun}->{verb}_{number:x})"),
                4 => writeln!(text, "\t\treturn {number};"),
                5 => writeln!(text, "\t{noun}_{verb}({noun}, {number:#x});"),
                6 => writeln!(text, "\t{kind} {noun} = {verb}_{noun}({number});"),
                _ => writeln!(text, "}}"),
            };
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_edit_leaves_most_lines_as_they_were() {
        let mut rng = Rng::of_stream(1, 1);
        let mut source = Source::new(&mut rng, 40_000);
        let before = source.clone();
        source.edit(&mut rng);
        let same_start = before.0.iter().zip(&source.0).take_while(|(a, b)| a == b).count();
        let same_end = before.0.iter().rev().zip(source.0.iter().rev()).take_while(|(a, b)| a == b).count();
        assert_ne!(before.text(), source.text());
        assert!(same_start + same_end + 6 >= before.0.len(), "{same_start} and {same_end} lines");
    }

    #[test]
    fn a_text_has_about_the_size_that_was_asked_for() {
        let text = Source::new(&mut Rng::of_stream(2, 2), 100_000).text();
        assert!((50_000..200_000).contains(&text.len()), "{} bytes", text.len());
        assert_eq!(text, Source::new(&mut Rng::of_stream(2, 2), 100_000).text());
    }
}
