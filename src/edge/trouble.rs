//! Trouble on demand (`--clob-trouble`): what clients of the venue's interface meet, and a record
//! of it and of what they do.

mod record;
mod settlement;

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;

pub use record::{FILE_NAME, RECORD_BYTES_MAX, Record};
use settlement::Settlements;
pub use settlement::{Due, Unsettled};
pub(crate) use settlement::{Moved, Stage};

use crate::rows::clob_trade::Trade;
pub use paperbourse_clob::trouble::Plan;
use paperbourse_clob::trouble::{Act, Drawn, Draws, Kind, Line, Met};
use paperbourse_core::ids::{AccountId, Timestamp};

/// The trouble of a server.
#[derive(Debug)]
pub struct Trouble {
    draws: Mutex<Draws>,
    /// How often each kind was met, in the order of [`Kind::ALL`].
    met: [AtomicU64; Kind::ALL.len()],
    /// `None` if data is kept in memory.
    record: Option<Record>,
    settlements: Settlements,
}

/// Who may meet trouble.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Subject<'a> {
    /// What draws are counted by: a wallet, an address, a socket's number or a market. Two subjects
    /// of a kind never have the same name.
    pub name: &'a str,
    /// The wallet, in lower case, if it is known.
    pub wallet: Option<&'a str>,
    /// The address of the request or socket, if there is one.
    pub address: Option<IpAddr>,
}

/// What the trouble is about.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct About<'a> {
    /// The ids of the orders.
    pub orders: &'a [&'a str],
    /// The outcome's token.
    pub token: Option<&'a str>,
}

impl Trouble {
    /// Creates the trouble of a plan, with a record unless data is kept in memory.
    pub fn new(plan: Plan, record: Option<Record>) -> Self {
        let draws = Mutex::new(Draws::new(plan));
        let met = [const { AtomicU64::new(0) }; Kind::ALL.len()];
        Self { draws, met, record, settlements: Settlements::new(Timestamp::now()) }
    }

    /// Follows another plan from now on.
    pub fn follow(&self, plan: Plan) {
        tracing::info!(%plan, "trouble on demand");
        self.draws.lock().follow(plan);
    }

    /// Returns the plan that is followed.
    pub fn plan(&self) -> Plan {
        self.draws.lock().plan().clone()
    }

    /// Returns how often each kind was met that was met at all.
    pub fn counts(&self) -> impl Iterator<Item = (Kind, u64)> {
        let counts = Kind::ALL.into_iter().zip(&self.met);
        counts.map(|(kind, met)| (kind, met.load(Ordering::Relaxed))).filter(|(_, met)| *met > 0)
    }

    /// Returns the number of lines that did not fit into the record.
    pub fn unrecorded_count(&self) -> u64 {
        self.record.as_ref().map_or(0, Record::dropped_count)
    }

    /// Draws once for a request, fill or frame. What is drawn is counted and recorded, unless it
    /// belongs to a window that began before.
    pub fn draw(
        &self,
        kind: Kind,
        subject: Subject<'_>,
        about: About<'_>,
        now: Timestamp,
    ) -> Option<Drawn> {
        let now_ms = now.millis().unsigned_abs();
        let drawn = self.draws.lock().draw(kind, subject.name, subject.wallet, now_ms)?;
        if !drawn.goes_on {
            let place = Kind::ALL.iter().position(|it| *it == kind).expect("all kinds are there");
            self.met[place].fetch_add(1, Ordering::Relaxed);
            if let Some(record) = &self.record {
                record.add(Line::Met(Met {
                    at_ms: now_ms,
                    trouble: kind,
                    number: drawn.number,
                    length_ms: drawn.length_ms,
                    wallet: subject.wallet.map(Into::into),
                    address: subject.address.map(|address| address.to_string().into()),
                    orders: about.orders.iter().map(|id| Box::from(*id)).collect(),
                    token: about.token.map(Into::into),
                }));
            }
        }
        Some(drawn)
    }

    /// Returns what is left of an open window, in milliseconds, without a draw.
    pub fn open_ms(&self, kind: Kind, subject: Subject<'_>, now: Timestamp) -> u64 {
        let now_ms = now.millis().unsigned_abs();
        self.draws.lock().open_ms(kind, subject.name, subject.wallet, now_ms)
    }

    /// Returns how far the settlement of a trade of this account and wallet is.
    pub(crate) fn stage(&self, of: (AccountId, &str), trade: &Trade<'_>, now: Timestamp) -> Stage {
        self.settlements.stage(self, of, trade, now)
    }

    /// Returns what the trades of an account that are not settled have moved, with the shares of
    /// one outcome.
    pub(crate) fn moved(&self, account: AccountId, token_id: Option<&str>) -> Moved {
        self.settlements.moved(account, token_id)
    }

    /// Waits until something is due for a trade, and returns what.
    pub async fn next_due(&self) -> Due {
        self.settlements.next(Timestamp::now).await
    }

    /// Records that a trade is settled or, with `has_failed`, that its fill was undone.
    pub fn end(&self, trade: &Unsettled, has_failed: bool) {
        let stage = if has_failed { Stage::Failed } else { Stage::Confirmed };
        self.settlements.end(trade, stage);
    }

    /// Records what somebody did.
    pub fn act(&self, act: impl FnOnce() -> Act) {
        if let Some(record) = &self.record {
            record.add(Line::Act(act()));
        }
    }
}

/// The trouble of a server that has any.
pub type MaybeTrouble = Option<Arc<Trouble>>;
