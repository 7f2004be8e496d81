//! A report of trouble for people, at most 80 columns wide.

use std::fmt;

use super::FileReport;
use crate::ids::Timestamp;
use crate::telemetry::OneLine;
use crate::trouble::{Example, Finding, Party};

/// Width of a line, in characters.
const COLUMNS: usize = 80;

/// Number of characters of an id or a token that are shown.
const ID_CHARACTERS_MAX: usize = 14;

/// A time in milliseconds since 1970.
struct At(u64);

/// Text that is wrapped, each line indented by this many spaces.
struct Wrapped<'a>(&'a str, usize);

impl fmt::Display for At {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}", Timestamp::from_millis(i64::try_from(self.0).unwrap_or(i64::MAX)))
    }
}

impl fmt::Display for Wrapped<'_> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let &Self(text, indent) = self;
        let mut used = 0;
        for word in text.split_whitespace() {
            let length = word.chars().count();
            if used == 0 || used + 1 + length > COLUMNS {
                write!(out, "{}{:indent$}{word}", if used == 0 { "" } else { "\n" }, "")?;
                used = indent + length;
            } else {
                write!(out, " {word}")?;
                used += 1 + length;
            }
        }
        writeln!(out)
    }
}

impl fmt::Display for FileReport {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let report = &self.report;
        if let (Some(from_ms), Some(until_ms)) = (report.from_ms, report.until_ms) {
            let text =
                format!("{} lines from {} to {}", report.line_count, At(from_ms), At(until_ms));
            write!(out, "{}", Wrapped(&text, 0))?;
        }
        for party in &report.parties {
            write_party(party, self.has_findings, out)?;
        }
        writeln!(out)?;
        let notes = [
            (report.unjudged_count, "lines or orders that were not judged, too many at a time"),
            (self.unreadable_line_count, "unreadable lines"),
        ];
        for (count, note) in notes.into_iter().filter(|(count, _)| *count > 0) {
            writeln!(out, "Number of {note}: {count}")?;
        }
        if self.has_torn_end {
            writeln!(out, "The last line is incomplete, as after a kill, and was skipped.")?;
        }
        if self.is_full {
            let note = "The record is full, so the newest lines are missing: stop the server and \
                        move it away.";
            write!(out, "{}", Wrapped(note, 0))?;
        }
        let count = report.parties.iter().flat_map(|party| &party.findings).count();
        match count {
            _ if report.parties.is_empty() => write!(out, "No trouble was met."),
            _ if !self.has_findings => write!(out, "What they did about it: --report"),
            0 => write!(out, "Nothing would have cost money."),
            1 => write!(out, "1 finding."),
            _ => write!(out, "{count} findings."),
        }
    }
}

fn write_party(party: &Party, has_findings: bool, out: &mut fmt::Formatter<'_>) -> fmt::Result {
    let (name, who) = match (&party.wallet, &party.address) {
        (Some(wallet), _) => ("wallet", &**wallet),
        (None, Some(address)) => ("without a wallet, from", &**address),
        (None, None) => ("unknown", ""),
    };
    writeln!(out, "\n{name} {}, {} requests", OneLine(who), party.request_count)?;
    let met: Vec<String> =
        party.met.iter().map(|(kind, count)| format!("{kind} {count}")).collect();
    if !met.is_empty() {
        write!(out, "{}", Wrapped(&format!("met: {}", met.join(", ")), 2))?;
    }
    let orders = party.unanswered_orders;
    if orders.count > 0 {
        let text = format!(
            "orders without an answer: {}; then sent again {}, looked for {}, cancelled {}, \
             seen on a socket {}",
            orders.count, orders.repeated, orders.looked_for, orders.cancelled, orders.on_socket
        );
        write!(out, "{}", Wrapped(&text, 2))?;
    }
    for finding in party.findings.iter().filter(|_| has_findings) {
        write_finding(finding, out)?;
    }
    Ok(())
}

fn write_finding(finding: &Finding, out: &mut fmt::Formatter<'_>) -> fmt::Result {
    writeln!(out, "\n  {}: {}", finding.mistake.title(), finding.count)?;
    write!(out, "{}", Wrapped(finding.advice, 4))?;
    for Example { at_ms, order, salt, token } in &finding.examples {
        write!(out, "    {}", At(*at_ms))?;
        let named = match order {
            Some(_) => [("order", order), ("token", token)],
            None => [("salt", salt), ("token", token)],
        };
        for (name, id) in named {
            if let Some(id) = id {
                write!(out, "  {name} {}", Short(id))?;
            }
        }
        writeln!(out)?;
    }
    Ok(())
}

/// The beginning of an id.
struct Short<'a>(&'a str);

impl fmt::Display for Short<'_> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0.char_indices().nth(ID_CHARACTERS_MAX) {
            Some((end, _)) => write!(out, "{}…", OneLine(&self.0[..end])),
            None => write!(out, "{}", OneLine(self.0)),
        }
    }
}
