//! Which snapshots stay: the newest of each of the last periods, as the rules say.

use jiff::civil::{DateTime, date};
use jiff::tz::TimeZone;
use jiff::{Span, Timestamp, Zoned};
use serde::Serialize;

/// How many snapshots to keep by each rule. A rule without a number keeps none.
#[derive(clap::Args, Clone, Copy, Debug, Default)]
pub struct Rules {
    /// Keep the N newest
    #[arg(long, value_name = "N")]
    keep_last: Option<usize>,
    /// Keep the newest of each of the last N hours that have any
    #[arg(long, value_name = "N")]
    keep_hourly: Option<usize>,
    /// The same of days
    #[arg(long, value_name = "N")]
    keep_daily: Option<usize>,
    /// The same of weeks, from Monday on
    #[arg(long, value_name = "N")]
    keep_weekly: Option<usize>,
    /// The same of months
    #[arg(long, value_name = "N")]
    keep_monthly: Option<usize>,
    /// The same of years
    #[arg(long, value_name = "N")]
    keep_yearly: Option<usize>,
}

/// A rule, as a reason why a snapshot stays.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Rule {
    Last,
    Hourly,
    Daily,
    Weekly,
    Monthly,
    Yearly,
}

impl Rules {
    /// Whether a rule keeps any.
    pub fn keep_some(&self) -> bool {
        self.all().iter().any(|(_, keep)| *keep > 0)
    }

    fn all(&self) -> [(Rule, usize); 6] {
        [
            (Rule::Last, self.keep_last),
            (Rule::Hourly, self.keep_hourly),
            (Rule::Daily, self.keep_daily),
            (Rule::Weekly, self.keep_weekly),
            (Rule::Monthly, self.keep_monthly),
            (Rule::Yearly, self.keep_yearly),
        ]
        .map(|(rule, keep)| (rule, keep.unwrap_or(0)))
    }

    /// The rules that keep each of the snapshots, whose times come newest first; none for one that goes.
    /// Periods are those of the time zone.
    pub fn reasons(&self, made: &[Timestamp], zone: &TimeZone) -> Vec<Vec<Rule>> {
        let mut reasons = vec![Vec::new(); made.len()];
        for (rule, keep) in self.all() {
            let mut periods = 0;
            let mut last = None;
            for (made, reasons) in made.iter().zip(&mut reasons) {
                let period = rule.period(&made.to_zoned(zone.clone()));
                if rule == Rule::Last || last != Some(period) {
                    periods += 1;
                    if periods > keep {
                        break;
                    }
                    last = Some(period);
                    reasons.push(rule);
                }
            }
        }
        reasons
    }
}

impl Rule {
    /// The beginning of the period in which a time is.
    fn period(self, time: &Zoned) -> DateTime {
        let day = time.date();
        let (year, month) = (day.year(), day.month());
        match self {
            Rule::Last => time.datetime(),
            // Where a clock is set back, two hours of one name are one.
            Rule::Hourly => day.at(time.hour(), 0, 0, 0),
            Rule::Daily => day.into(),
            Rule::Weekly => {
                let since_monday = i64::from(day.weekday().to_monday_zero_offset());
                day.saturating_sub(Span::new().days(since_monday)).into()
            }
            Rule::Monthly => date(year, month, 1).into(),
            Rule::Yearly => date(year, 1, 1).into(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The times that stay, of times given newest first.
    fn kept(rules: Rules, made: &[&str], zone: &TimeZone) -> Vec<String> {
        let times: Vec<Timestamp> = made.iter().map(|time| time.parse().unwrap()).collect();
        let reasons = rules.reasons(&times, zone);
        assert_eq!(reasons.len(), made.len());
        made.iter()
            .zip(reasons)
            .filter(|(_, why)| !why.is_empty())
            .map(|(time, _)| (*time).to_owned())
            .collect()
    }

    #[test]
    fn the_newest_of_each_of_the_last_periods_with_any_stays() {
        let made = [
            "2026-11-25T10:50:00Z",
            "2026-11-25T10:10:00Z",
            "2026-11-25T08:59:59Z",
            "2026-11-24T23:00:00Z",
            "2026-11-22T12:00:00Z",
            "2026-11-16T00:00:00Z",
            "2026-10-31T00:00:00Z",
            "2025-12-31T23:59:59Z",
        ];
        let cases: [(Rules, &[usize]); 9] = [
            (Rules { keep_last: Some(3), ..Rules::default() }, &[0, 1, 2]),
            (Rules { keep_last: Some(99), ..Rules::default() }, &[0, 1, 2, 3, 4, 5, 6, 7]),
            (Rules { keep_hourly: Some(3), ..Rules::default() }, &[0, 2, 3]),
            (Rules { keep_daily: Some(3), ..Rules::default() }, &[0, 3, 4]),
            // The 22nd is a Sunday, in the week of the 16th.
            (Rules { keep_weekly: Some(3), ..Rules::default() }, &[0, 4, 6]),
            (Rules { keep_monthly: Some(2), ..Rules::default() }, &[0, 6]),
            (Rules { keep_yearly: Some(5), ..Rules::default() }, &[0, 7]),
            (Rules { keep_last: Some(2), keep_monthly: Some(2), ..Rules::default() }, &[0, 1, 6]),
            (Rules { keep_last: Some(0), ..Rules::default() }, &[]),
        ];
        for (rules, expected) in cases {
            let expected: Vec<_> = expected.iter().map(|nth| made[*nth]).collect();
            assert_eq!(kept(rules, &made, &TimeZone::UTC), expected, "{rules:?}");
        }
        assert_eq!(kept(Rules { keep_daily: Some(1), ..Rules::default() }, &[], &TimeZone::UTC), [""; 0]);
    }

    #[test]
    fn days_are_those_of_the_time_zone() {
        let made = ["2026-11-25T01:00:00Z", "2026-11-24T23:30:00Z"];
        let rules = Rules { keep_daily: Some(2), ..Rules::default() };
        assert_eq!(kept(rules, &made, &TimeZone::UTC), made);
        let east = TimeZone::fixed(jiff::tz::offset(2));
        assert_eq!(kept(rules, &made, &east), made[..1]);
    }

    #[test]
    fn only_numbers_above_0_keep_some() {
        assert!(!Rules::default().keep_some());
        assert!(!Rules { keep_last: Some(0), ..Rules::default() }.keep_some());
        assert!(Rules { keep_weekly: Some(1), ..Rules::default() }.keep_some());
    }
}
