//! Trouble on demand (`--clob-trouble`): what clients of the venue's interface meet, and a record
//! of it and of what they do.

mod record;
mod settlement;

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;
use tokio::sync::{Notify, RwLock, RwLockReadGuard};
use tokio::time::{Instant, sleep_until};

pub(crate) use crate::rows::settlement::Stage;
pub use record::{FILE_NAME, RECORD_BYTES_MAX, Record};
pub(crate) use settlement::Moved;
use settlement::Settlements;
pub use settlement::{Due, Unsettled};

use crate::rows::clob_trade::Trade;
use paperbourse_clob::trouble::{Act, ActKind, Drawn, Draws, Kind, Met};
pub use paperbourse_clob::trouble::{Example, Finding, Line, Party, Plan, Reader, Report};
use paperbourse_core::ids::{AccountId, Timestamp};
use paperbourse_core::market::catalogue::MarketInfo;
use paperbourse_core::money::Price;

/// The largest tick that can become coarser, in micro-dollars.
const FINE_TICK_MICROS_MAX: i64 = 10_000;

/// The trouble of a server.
#[derive(Debug)]
pub struct Trouble {
    draws: Mutex<Draws>,
    /// How often each kind was met, in the order of [`Kind::ALL`].
    met: [AtomicU64; Kind::ALL.len()],
    /// `None` if data is kept in memory.
    record: Option<Record>,
    settlements: Settlements,
    /// Locked for writing while a fill is undone. Whoever reads what an account has, and what its
    /// trades have moved, locks it for reading.
    undoing: RwLock<()>,
    /// The number of market sockets that were opened.
    socket_count: AtomicU64,
    /// Signals that another plan is followed.
    followed: Notify,
}

/// Who may meet trouble.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Subject<'a> {
    /// What draws are counted by: a wallet, an address, a market, or a socket's number with a
    /// market. Two subjects of a kind never have the same name.
    pub name: &'a str,
    /// The wallet, in lower case, if it is known.
    pub wallet: Option<&'a str>,
    /// The address of the request or socket, if there is one.
    pub address: Option<IpAddr>,
}

impl<'a> Subject<'a> {
    /// Returns a wallet as the subject, by its address in lower case.
    pub(crate) const fn wallet(wallet: &'a str, address: Option<IpAddr>) -> Self {
        Self { name: wallet, wallet: Some(wallet), address }
    }
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
        Self {
            draws,
            met,
            record,
            settlements: Settlements::new(Timestamp::now()),
            undoing: RwLock::default(),
            socket_count: AtomicU64::new(0),
            followed: Notify::new(),
        }
    }

    /// Follows another plan from now on.
    pub fn follow(&self, plan: Plan) {
        tracing::info!(%plan, "trouble on demand");
        self.draws.lock().follow(plan);
        self.followed.notify_waiters();
    }

    /// Whether trouble of a kind ever comes to anybody.
    pub fn has(&self, kind: Kind) -> bool {
        self.draws.lock().plan().has(kind)
    }

    /// Waits for the end of something that lasts until then, or less if the plan that is followed
    /// no longer has its kind.
    pub async fn wait(&self, kind: Kind, until: Instant) {
        loop {
            let followed = self.followed.notified();
            if !self.has(kind) {
                return;
            }
            tokio::select! {
                () = sleep_until(until) => return,
                () = followed => {}
            }
        }
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
            self.met[kind as usize].fetch_add(1, Ordering::Relaxed);
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

    /// Returns how far the settlement of a trade of this account and wallet is.
    pub(crate) fn stage(&self, of: (AccountId, &str), trade: &Trade<'_>, now: Timestamp) -> Stage {
        self.settlements.stage(self, of, trade, now)
    }

    /// Returns what the trades of an account that are not settled have moved, with the shares of
    /// one outcome.
    pub(crate) fn moved(&self, account: AccountId, token_id: Option<&str>) -> Moved {
        self.settlements.moved(account, token_id)
    }

    /// Waits until no fill is being undone, and holds back others until the result is dropped.
    pub(crate) async fn hold_still(&self) -> RwLockReadGuard<'_, ()> {
        self.undoing.read().await
    }

    /// Waits until something is due for a trade, and returns what.
    pub async fn next_due(&self) -> Due {
        self.settlements.next(Timestamp::now).await
    }

    /// Records that a trade is settled.
    pub fn settle(&self, trade: &Unsettled) {
        self.settlements.end(trade, Stage::Confirmed);
    }

    /// Has `undo` undo the fill of a trade, and records what has become of it. `undo` returns
    /// whether it is undone; if not, the trade is settled.
    pub async fn fail(&self, trade: &Unsettled, undo: impl Future<Output = bool>) -> bool {
        let _undoing = self.undoing.write().await;
        let is_undone = undo.await;
        let stage = if is_undone { Stage::Failed } else { Stage::Confirmed };
        self.settlements.end(trade, stage);
        is_undone
    }

    /// Returns the tick of a market that is shown and enforced in place of its own; `None` if that
    /// is its own.
    pub fn tick(&self, info: &MarketInfo, now: Timestamp) -> Option<Price> {
        let now_ms = now.millis().unsigned_abs();
        let coarse = coarse_tick(info)?;
        let open_ms = self.draws.lock().open_to_all_ms(Kind::Tick, &info.condition_id, now_ms);
        (open_ms > 0).then_some(coarse)
    }

    /// Returns a number for a market socket that no other has.
    pub fn number_socket(&self) -> u64 {
        self.socket_count.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// Forgets the draws for frames of a market socket that has ended. The names of their subjects
    /// begin with `prefix`.
    pub fn forget_frames(&self, prefix: &str) {
        self.draws.lock().forget_frames(prefix);
    }

    /// Records what somebody did.
    pub fn act(&self, act: impl FnOnce() -> Act) {
        if let Some(record) = &self.record {
            record.add(Line::Act(act()));
        }
    }
}

/// Returns the tick that is shown for a while in place of a market's own, if that is fine enough.
pub fn coarse_tick(info: &MarketInfo) -> Option<Price> {
    let micros = info.tick.micros();
    (micros <= FINE_TICK_MICROS_MAX).then(|| Price::from_micros(10 * micros))
}

/// The trouble of a server that has any.
pub type MaybeTrouble = Option<Arc<Trouble>>;

/// The trouble that a socket from an address meets.
#[derive(Clone, Debug)]
pub struct SocketTrouble {
    /// The trouble of the server.
    pub trouble: Arc<Trouble>,
    /// Where the socket comes from.
    pub address: IpAddr,
}

impl SocketTrouble {
    /// Records the beginning or the end of a socket. `wallet` is its wallet, in lower case, if it
    /// has one, and `tokens` are the outcomes that it is about.
    pub fn act(&self, act: ActKind, wallet: Option<&str>, tokens: Vec<Box<str>>) {
        self.trouble.act(|| Act {
            at_ms: Timestamp::now().millis().unsigned_abs(),
            act,
            wallet: wallet.map(Into::into),
            address: Some(self.address.to_string().into()),
            status: 0,
            order: None,
            tokens,
        });
    }
}
