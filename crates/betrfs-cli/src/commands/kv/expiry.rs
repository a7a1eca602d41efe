//! Times at which values expire, on the command line.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::time::{Duration, SystemTime};

use betree_store::{Dict, DictOptions, Error, Store};
use jiff::{Span, SpanRelativeTo, Timestamp};

use crate::failure::Outcome;

/// How long a value stays.
#[derive(clap::Args)]
#[group(multiple = false)]
pub struct Lifetime {
    /// Let the value expire after this time, such as 30s, 12h or "1 day 12h". A dictionary that is there must
    /// have been made with --expiring
    #[arg(long = "for", value_name = "TIME", value_parser = duration)]
    lives: Option<Duration>,
    /// Let the value expire at this time, such as 2030-01-31T12:00:00Z
    #[arg(long, value_name = "TIME", value_parser = time)]
    until: Option<SystemTime>,
}

fn duration(text: &str) -> Result<Duration, String> {
    let span: Span = text.parse().map_err(|error| format!("{error}"))?;
    let days = SpanRelativeTo::days_are_24_hours();
    let duration = span.to_duration(days).map_err(|error| format!("{error}"))?;
    Duration::try_from(duration).map_err(|error| format!("{error}"))
}

fn time(text: &str) -> Result<SystemTime, String> {
    let time: Timestamp = text.parse().map_err(|error| format!("{error}"))?;
    Ok(time.into())
}

impl Lifetime {
    /// Puts a value that stays so long. The dictionary is made if there is none.
    pub fn put(&self, store: &Store, dict: &str, key: &OsStr, value: Vec<u8>) -> Outcome {
        let expiring = || match store.open_dict(dict) {
            Err(Error::NoSuchDict { .. }) => store.create(dict, &DictOptions::new().expiring()),
            opened => opened,
        };
        let key = key.as_bytes();
        match (self.lives, self.until) {
            (Some(lives), _) => expiring()?.put_for(key, value, lives)?,
            (None, Some(until)) => expiring()?.put_until(key, value, until)?,
            (None, None) => store.dict(dict)?.put(key, value)?,
        }
        Ok(())
    }
}

/// When the value of a key expires, as text: empty if never.
pub fn shown(dict: &Dict, key: &[u8]) -> Result<String, Error> {
    let expires = dict.expires_at(key)?.and_then(|expires| Timestamp::try_from(expires).ok());
    Ok(expires.map_or_else(String::new, |expires| expires.to_string()))
}
