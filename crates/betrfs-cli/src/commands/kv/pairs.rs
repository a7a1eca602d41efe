//! Pairs as text and as bytes.

use std::io::{self, BufRead, Read, Write};

use betree_store::{KEY_BYTES_MAX, VALUE_BYTES_MAX};

/// The forms of pairs in a file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum Form {
    /// A line each: key, comma, value
    #[default]
    Csv,
    /// The length of the key, the key, and the value in the same way
    Framed,
}

/// A key and its value.
pub type Pair = (Vec<u8>, Vec<u8>);

/// Writes a pair.
pub fn write_pair(form: Form, key: &[u8], value: &[u8], out: &mut impl Write) -> io::Result<()> {
    match form {
        Form::Csv => write_fields(&[key, value], out),
        Form::Framed => [key, value].into_iter().try_for_each(|bytes| {
            out.write_all(&(bytes.len() as u32).to_le_bytes())?;
            out.write_all(bytes)
        }),
    }
}

/// Writes a line of fields.
pub fn write_fields(fields: &[&[u8]], out: &mut impl Write) -> io::Result<()> {
    for (number, field) in fields.iter().enumerate() {
        if number > 0 {
            out.write_all(b",")?;
        }
        write_field(field, out)?;
    }
    out.write_all(b"\n")
}

fn write_field(field: &[u8], out: &mut impl Write) -> io::Result<()> {
    if !field.iter().any(|byte| b",\"\r\n".contains(byte)) {
        return out.write_all(field);
    }
    out.write_all(b"\"")?;
    for (number, part) in field.split(|byte| *byte == b'"').enumerate() {
        if number > 0 {
            out.write_all(b"\"\"")?;
        }
        out.write_all(part)?;
    }
    out.write_all(b"\"")
}

/// Reads pairs one after the other.
pub struct Pairs<R> {
    input: R,
    form: Form,
    /// The number of the line, or of the pair.
    place: u64,
}

/// The end of a field.
#[derive(Clone, Copy, PartialEq, Eq)]
enum End {
    Comma,
    Line,
    Input,
}

impl<R: BufRead> Pairs<R> {
    /// The pairs of an input.
    pub fn of(input: R, form: Form) -> Pairs<R> {
        Pairs { input, form, place: 0 }
    }

    /// The next pair, or `None` at the end.
    ///
    /// # Errors
    /// A sentence with the place.
    pub fn next(&mut self) -> Result<Option<Pair>, String> {
        self.place += 1;
        let place = self.place;
        match self.form {
            Form::Csv => self.next_line().map_err(|why| format!("line {place}: {why}")),
            Form::Framed => self.next_framed().map_err(|why| format!("pair {place}: {why}")),
        }
    }

    fn next_line(&mut self) -> Result<Option<Pair>, String> {
        let (key, end) = self.field()?;
        if end == End::Input && key.is_empty() {
            return Ok(None);
        }
        if end != End::Comma {
            return Err("it has no comma".into());
        }
        let (value, end) = self.field()?;
        if end == End::Comma {
            return Err("it has a second comma: a field with commas stands in quotes".into());
        }
        Ok(Some((key, value)))
    }

    fn byte(&mut self) -> Result<Option<u8>, String> {
        let byte = self.input.fill_buf().map_err(|error| error.to_string())?.first().copied();
        self.input.consume(usize::from(byte.is_some()));
        Ok(byte)
    }

    /// A field and its end.
    fn field(&mut self) -> Result<(Vec<u8>, End), String> {
        let mut field = Vec::new();
        let mut next = self.byte()?;
        if next == Some(b'"') {
            loop {
                match self.byte()? {
                    Some(b'"') => {
                        next = self.byte()?;
                        if next != Some(b'"') {
                            break;
                        }
                        field.push(b'"');
                    }
                    Some(byte) => {
                        self.place += u64::from(byte == b'\n');
                        field.push(byte);
                    }
                    None => return Err("its quotes do not end".into()),
                }
                refuse_if_long(field.len())?;
            }
            return match next {
                Some(b',') => Ok((field, End::Comma)),
                Some(b'\n') => Ok((field, End::Line)),
                Some(b'\r') if self.byte()? == Some(b'\n') => Ok((field, End::Line)),
                None => Ok((field, End::Input)),
                Some(_) => Err("it goes on behind quotes".into()),
            };
        }
        loop {
            match next {
                Some(b',') => return Ok((field, End::Comma)),
                Some(b'\n') => {
                    if field.last() == Some(&b'\r') {
                        field.pop();
                    }
                    return Ok((field, End::Line));
                }
                Some(b'"') => return Err("it has a quote within a field that does not begin with one".into()),
                Some(byte) => field.push(byte),
                None => return Ok((field, End::Input)),
            }
            refuse_if_long(field.len())?;
            next = self.byte()?;
        }
    }

    fn next_framed(&mut self) -> Result<Option<Pair>, String> {
        if self.input.fill_buf().map_err(|error| error.to_string())?.is_empty() {
            return Ok(None);
        }
        let key = self.framed(KEY_BYTES_MAX)?;
        let value = self.framed(VALUE_BYTES_MAX)?;
        Ok(Some((key, value)))
    }

    fn framed(&mut self, most: usize) -> Result<Vec<u8>, String> {
        let cut_off = |_| "the input ends in it".to_owned();
        let mut len = [0; 4];
        self.input.read_exact(&mut len).map_err(cut_off)?;
        let len = u32::from_le_bytes(len);
        if len as usize > most {
            return Err(format!("a length of {len} bytes is over the limit of {most} bytes"));
        }
        // Memory as it comes, not as it is announced.
        let mut bytes = Vec::new();
        let read = self.input.by_ref().take(len.into()).read_to_end(&mut bytes);
        if read.map_err(|error| error.to_string())? < len as usize {
            return Err("the input ends in it".into());
        }
        Ok(bytes)
    }
}

fn refuse_if_long(bytes: usize) -> Result<(), String> {
    if bytes > VALUE_BYTES_MAX {
        return Err(format!("a field is over the limit of {VALUE_BYTES_MAX} bytes"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    type Read = Result<Vec<Pair>, String>;

    fn read(form: Form, input: &[u8]) -> Read {
        let mut pairs = Pairs::of(input, form);
        let mut all = Vec::new();
        while let Some(pair) = pairs.next()? {
            all.push(pair);
        }
        Ok(all)
    }

    fn pairs(texts: &[(&str, &str)]) -> Read {
        Ok(texts.iter().map(|(key, value)| (key.as_bytes().to_vec(), value.as_bytes().to_vec())).collect())
    }

    #[test]
    fn pairs_of_any_bytes_come_back_in_both_forms() {
        let fields: &[&[u8]] =
            &[b"", b"plain", b",", b"\"", b"a\"\"b", b"\r\n", b"\r", b"\0\xff", b" \n ", b"\"\n,"];
        for form in [Form::Csv, Form::Framed] {
            let (mut expected, mut written) = (Vec::new(), Vec::new());
            for (key, value) in fields.iter().flat_map(|key| fields.iter().map(move |value| (key, value))) {
                write_pair(form, key, value, &mut written).unwrap();
                expected.push((key.to_vec(), value.to_vec()));
            }
            assert_eq!(read(form, &written), Ok(expected), "{form:?}");
        }
    }

    #[test]
    fn lines_are_read_as_others_write_them() {
        assert_eq!(
            read(Form::Csv, b"a,1\r\nb,\"2,\"\r\nc,\nd,4"),
            pairs(&[("a", "1"), ("b", "2,"), ("c", ""), ("d", "4")])
        );
        assert_eq!(read(Form::Csv, b""), pairs(&[]));
        assert_eq!(read(Form::Csv, b",\n"), pairs(&[("", "")]));
    }

    #[test]
    fn what_is_wrong_is_told_with_its_place() {
        for (input, told) in [
            (&b"a,1\nb\n"[..], "line 2: it has no comma"),
            (b"a,1\n\n", "line 2: it has no comma"),
            (b"a,1,2\n", "line 1: it has a second comma: a field with commas stands in quotes"),
            (b"\"a\nb\",1\nc", "line 3: it has no comma"),
            (b"a,\"1", "line 1: its quotes do not end"),
            (b"a,\"1\"2", "line 1: it goes on behind quotes"),
            (b"a,1\"", "line 1: it has a quote within a field that does not begin with one"),
        ] {
            assert_eq!(read(Form::Csv, input), Err(told.to_owned()), "{}", input.escape_ascii());
        }
        let mut framed = Vec::new();
        write_pair(Form::Framed, b"key", b"value", &mut framed).unwrap();
        for len in 1..framed.len() {
            assert_eq!(read(Form::Framed, &framed[..len]), Err("pair 1: the input ends in it".to_owned()));
        }
        let told = "pair 1: a length of 4294967295 bytes is over the limit of 65531 bytes";
        assert_eq!(read(Form::Framed, &[0xff; 100]), Err(told.to_owned()));
    }
}
