//! Reads a record line by line.

use std::collections::{BTreeMap, HashMap};

use super::dead_books::DeadBooks;
use super::failed::FailedTrades;
use super::found::Found;
use super::pauses::Pauses;
use super::unanswered::UnansweredOrders;
use super::{Example, Mistake, Party, Report};
use crate::trouble::{Act, ActKind, Kind, Line, Met};

/// Maximum number of wallets in a report, and of addresses.
pub const PARTIES_MAX: usize = 10_000;

/// By how much a line may be earlier than one before it, in milliseconds: a line is written once
/// the request was carried out, and has the time at which it began.
const DISORDER_MS_MAX: u64 = 30_000;

/// Maximum number of lines that wait for earlier ones.
const WAITING_MAX: u64 = 50_000;

/// Makes a report from lines.
#[derive(Debug, Default)]
pub struct Reader {
    /// Lines that wait for earlier ones, by their time and number.
    waiting: BTreeMap<(u64, u64), Line>,
    newest_ms: u64,
    first_ms: Option<u64>,
    line_count: u64,
    judged_count: u64,
    unjudged_count: u64,
    parties: BTreeMap<Who, State>,
    /// By address.
    dead_books: HashMap<Box<str>, DeadBooks>,
}

#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Who {
    Wallet(Box<str>),
    Address(Box<str>),
}

/// What is known of a party.
#[derive(Debug, Default)]
struct State {
    request_count: u64,
    met: BTreeMap<Kind, u64>,
    found: Found,
    unanswered: UnansweredOrders,
    pauses: Pauses,
    failed: FailedTrades,
}

impl Reader {
    /// Reads a line. The lines have to come as they were written.
    pub fn read(&mut self, line: Line) {
        let at_ms = match &line {
            Line::Met(met) => met.at_ms,
            Line::Act(act) => act.at_ms,
        };
        self.first_ms = Some(self.first_ms.map_or(at_ms, |first| first.min(at_ms)));
        self.newest_ms = self.newest_ms.max(at_ms);
        self.waiting.insert((at_ms, self.line_count), line);
        self.line_count += 1;
        while let Some(entry) = self.waiting.first_entry() {
            let (at_ms, _) = entry.key();
            let is_due = at_ms.saturating_add(DISORDER_MS_MAX) < self.newest_ms;
            if !is_due && self.line_count - self.judged_count <= WAITING_MAX {
                break;
            }
            let line = entry.remove();
            self.judge(&line);
        }
    }

    /// Returns the report. The record has no more lines.
    pub fn report(mut self) -> Report {
        while let Some((_, line)) = self.waiting.pop_first() {
            self.judge(&line);
        }
        let mut unjudged_count = self.unjudged_count;
        let mut parties = Vec::new();
        for (who, mut state) in self.parties {
            state.unanswered.end(&mut state.found);
            unjudged_count += state.unanswered.unjudged_count;
            let party = state.into_party(who);
            if !party.met.is_empty() || !party.findings.is_empty() {
                parties.push(party);
            }
        }
        Report {
            is_clean: parties.iter().all(|party| party.findings.is_empty()),
            from_ms: self.first_ms,
            until_ms: self.first_ms.map(|_| self.newest_ms),
            line_count: self.line_count,
            unjudged_count,
            parties,
        }
    }

    fn judge(&mut self, line: &Line) {
        self.judged_count += 1;
        match line {
            Line::Met(met) => self.met(met),
            Line::Act(act) => self.act(act),
        }
    }

    fn met(&mut self, met: &Met) {
        let mut has_room = true;
        if let (Some(address), Kind::Silence | Kind::Ghost) = (&met.address, met.trouble) {
            let is_full = self.dead_books.len() >= PARTIES_MAX;
            if is_full && !self.dead_books.contains_key(address) {
                has_room = false;
            } else {
                has_room = self.dead_books.entry(address.clone()).or_default().met(met);
            }
        }
        if let Some(state) = self.party(met.wallet.as_deref(), met.address.as_deref()) {
            *state.met.entry(met.trouble).or_default() += 1;
            state.pauses.met(met);
            state.unanswered.met(met, &mut state.found);
            has_room &= state.failed.met(met);
        }
        self.unjudged_count += u64::from(!has_room);
    }

    fn act(&mut self, act: &Act) {
        let mut is_on_dead_book = false;
        if let Some(books) = act.address.as_ref().and_then(|it| self.dead_books.get_mut(it)) {
            books.read(act);
            is_on_dead_book = books.has_traded(act);
        }
        if let Some(state) = self.party(act.wallet.as_deref(), act.address.as_deref()) {
            state.act(act, is_on_dead_book);
        }
    }

    /// Returns the state of a party; `None` and counts if there are too many.
    fn party(&mut self, wallet: Option<&str>, address: Option<&str>) -> Option<&mut State> {
        let wallet = wallet.map(|wallet| Who::Wallet(wallet.into()));
        let who = wallet.or_else(|| address.map(|address| Who::Address(address.into())))?;
        if self.parties.len() >= 2 * PARTIES_MAX && !self.parties.contains_key(&who) {
            self.unjudged_count += 1;
            return None;
        }
        Some(self.parties.entry(who).or_default())
    }
}

impl State {
    fn act(&mut self, act: &Act, is_on_dead_book: bool) {
        let found = &mut self.found;
        self.request_count += u64::from(is_request(act.act));
        self.unanswered.act(act, found);
        self.pauses.act(act, found);
        self.failed.act(act, found);
        if act.order.as_ref().is_some_and(|order| order.is_unsettled) {
            found.add(Mistake::Unsettled, || Example::of_act(act));
        }
        if is_on_dead_book {
            found.add(Mistake::DeadBook, || Example::of_act(act));
        }
    }

    fn into_party(self, who: Who) -> Party {
        let (wallet, address) = match who {
            Who::Wallet(wallet) => (Some(wallet), None),
            Who::Address(address) => (None, Some(address)),
        };
        Party {
            wallet,
            address,
            request_count: self.request_count,
            met: self.met.into_iter().map(|(kind, count)| (kind.name(), count)).collect(),
            unanswered_orders: self.unanswered.done,
            findings: self.found.into_findings(),
        }
    }
}

/// Whether an act is a request, rather than something on a socket.
const fn is_request(act: ActKind) -> bool {
    use ActKind::{Balance, Book, Cancel, Look, Order, Other};
    matches!(act, Order | Cancel | Look | Balance | Book | Other)
}
