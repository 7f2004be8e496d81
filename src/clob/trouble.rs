//! Trouble on demand: what goes wrong at the venue, drawn from a seed, so that a bot can be tried
//! against it.
//!
//! A [`Plan`] says how often each [`Kind`] of trouble comes. [`Draws`] decides for each request and
//! frame whether it meets any. What came of it is a list of [`Line`]s, of which a [`Reader`] makes
//! a [`Report`].

mod draws;
mod line;
mod plan;
mod report;
#[cfg(test)]
mod tests;

pub use draws::{Drawn, Draws, SUBJECTS_MAX};
pub use line::{Act, ActKind, Line, Met, OrderAct, TOKENS_MAX};
pub use plan::{Plan, PlanFlaw, Rule};
pub use report::{Example, Finding, Mistake, PARTIES_MAX, Party, Reader, Report, Unanswered};

/// What trouble of a kind befalls.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Scope {
    /// A request of a wallet, or one without credentials.
    Request,
    /// A request of a wallet that places or cancels orders.
    Order,
    /// A fill of a wallet's order.
    Fill,
    /// A frame of a wallet's user socket.
    UserFrame,
    /// A frame of a market socket.
    MarketFrame,
}

/// What one draw decides.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Extent {
    /// One request, fill or frame.
    Once,
    /// One request or fill, which takes this long, in milliseconds, unless the plan says otherwise.
    Delay(u32),
    /// All requests or frames of a time, in milliseconds unless the plan says otherwise.
    Window(u32),
}

macro_rules! kinds {
    ($($(#[$doc:meta])* $kind:ident $name:literal $scope:ident $extent:expr;)*) => {
        /// A kind of trouble.
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
        pub enum Kind {
            $($(#[$doc])* $kind,)*
        }

        impl Kind {
            /// All kinds.
            pub const ALL: [Self; [$($name),*].len()] = [$(Self::$kind),*];

            /// The name of the kind in plans and records.
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$kind => $name,)*
                }
            }

            /// What trouble of this kind befalls.
            pub const fn scope(self) -> Scope {
                match self {
                    $(Self::$kind => Scope::$scope,)*
                }
            }

            /// What one draw of this kind decides.
            pub const fn extent(self) -> Extent {
                match self {
                    $(Self::$kind => $extent,)*
                }
            }
        }
    };
}

kinds! {
    /// The request is carried out, and the connection ends without an answer.
    Lost "lost" Order Extent::Once;
    /// The request is carried out, and the answer comes late.
    Late "late" Order Extent::Delay(5_000);
    /// The connection ends without an answer, and nothing is done.
    Reset "reset" Request Extent::Once;
    /// The venue's matching engine restarts: 425.
    Restarting "restarting" Order Extent::Window(90_000);
    /// Nothing is done: 500.
    NotRun "not-run" Order Extent::Once;
    /// Orders are refused, cancellations are not: 503.
    CancelOnly "cancel-only" Order Extent::Window(30_000);
    /// Orders that are not post-only are refused: 503.
    PostOnly "post-only" Order Extent::Window(30_000);
    /// A proxy refuses the request with a page: 403.
    Blocked "blocked" Request Extent::Window(10_000);
    /// The wallet has used up its requests: 429.
    Limited "limited" Request Extent::Window(10_000);
    /// The order is refused once, as if it had an outdated version.
    Version "version" Order Extent::Once;
    /// The time that a client asks for is ahead.
    Clock "clock" Request Extent::Delay(5_000);
    /// A trade is settled late. Until then, its shares and its money are not there.
    Lag "lag" Fill Extent::Delay(5_000);
    /// A trade is settled late, after a retry.
    Retrying "retrying" Fill Extent::Delay(5_000);
    /// A trade fails to settle. The shares and the money return.
    Failed "failed" Fill Extent::Delay(5_000);
    /// An order waits before it takes liquidity.
    Delayed "delayed" Order Extent::Delay(3_000);
    /// The frame of a trade comes before that of its order.
    TradeFirst "trade-first" UserFrame Extent::Once;
    /// A frame comes twice.
    Twice "twice" UserFrame Extent::Once;
    /// A frame is left out.
    Omitted "omitted" UserFrame Extent::Once;
    /// The user socket ends.
    UserClosed "user-closed" UserFrame Extent::Once;
    /// The market socket is silent, but answers `PING`.
    Silence "silence" MarketFrame Extent::Window(20_000);
    /// The market socket shows a book that nobody has quoted, from 0.01 to 0.99.
    Ghost "ghost" MarketFrame Extent::Window(5_000);
    /// A change of the book is left out.
    Gap "gap" MarketFrame Extent::Once;
    /// The tick of a market is ten times as large for a while.
    Tick "tick" Order Extent::Window(30_000);
    /// The resolution of a market is not announced.
    Unresolved "unresolved" MarketFrame Extent::Once;
    /// The market socket ends.
    MarketClosed "market-closed" MarketFrame Extent::Once;
}

impl Kind {
    /// Returns the kind with this name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.name() == name)
    }
}
