//! Named orders execute once, however often they are sent.

use crate::script::check;

const MARKETS: &str = "
    balance 1000
    market M1 Yes No
    book M1 yes bids 0.4x1000 asks 0.5x1000
    market M2 Up Down
    book M2 up bids 0.4x1000 asks 0.5x1000
    open A1                             -> opened A1
    open A2                             -> opened A2
";

#[test]
fn an_order_is_found_by_any_of_its_names() {
    check(&format!(
        "{MARKETS}
        buy A1 M1 yes 10 name=a,b       -> filled cash 995 order O1
        buy A1 M1 yes 10 name=a         -> replay of O1
        buy A1 M1 yes 10 name=b         -> replay of O1
        buy A1 M1 yes 10 name=b,a       -> replay of O1
        buy token:A1 M1 yes 10 name=a   -> replay of O1
        # A name that is new in a replay would not become a name of the order.
        buy A1 M1 yes 10 name=a,c       -> IDEMPOTENCY_KEY_REUSE
        buy A1 M1 yes 10 name=c,b       -> IDEMPOTENCY_KEY_REUSE
        buy A1 M1 yes 10 name=c         -> filled cash 990 order O2
        # Names of two different orders conflict.
        buy A1 M1 yes 10 name=a,c       -> IDEMPOTENCY_KEY_REUSE
        # Orders without names are all different.
        buy A1 M1 yes 10                -> filled cash 985 order O3
        buy A1 M1 yes 10                -> filled cash 980 order O4
        # Names belong to one account.
        buy A2 M1 yes 10 name=a         -> filled cash 995 order O5
        buy A1 M1 yes 10 name=a         -> replay of O1
        buy A2 M1 yes 10 name=a         -> replay of O5
        # Entries of a batch have names apart from orders and from each other.
        buy A1 M1 yes 10 name=a#0       -> filled order O6
        buy A1 M1 yes 10 name=a#1       -> filled order O7
        buy A1 M1 yes 10 name=a#0       -> replay of O6
        "
    ));
}

#[test]
fn another_request_under_the_same_name_is_refused() {
    check(&format!(
        "{MARKETS}
        buy A1 M1 yes 10 expected=0.5 max_bps=100 name=a    -> filled order O1
        buy A1 M1 yes 10 expected=0.5 max_bps=100 name=a    -> replay of O1
        buy A1 M1 YES 10 expected=0.5 max_bps=100 name=a    -> replay of O1
        buy A1 M1 yes 10.0 expected=0.50 max_bps=100 name=a -> replay of O1
        buy A1 M2 yes 10 expected=0.5 max_bps=100 name=a    -> IDEMPOTENCY_KEY_REUSE
        buy A1 M9 yes 10 expected=0.5 max_bps=100 name=a    -> IDEMPOTENCY_KEY_REUSE
        buy A1 M1 no 10 expected=0.5 max_bps=100 name=a     -> IDEMPOTENCY_KEY_REUSE
        sell A1 M1 yes 10 expected=0.5 max_bps=100 name=a   -> IDEMPOTENCY_KEY_REUSE
        buy A1 M1 yes 10.000001 expected=0.5 max_bps=100 name=a -> IDEMPOTENCY_KEY_REUSE
        buy A1 M1 yes 10 expected=0.51 max_bps=100 name=a   -> IDEMPOTENCY_KEY_REUSE
        buy A1 M1 yes 10 max_bps=100 name=a                 -> IDEMPOTENCY_KEY_REUSE
        buy A1 M1 yes 10 expected=0.5 max_bps=101 name=a    -> IDEMPOTENCY_KEY_REUSE
        buy A1 M1 yes 10 expected=0.5 name=a                -> IDEMPOTENCY_KEY_REUSE
        # The request counts as sent: the default bound is not a bound of 500, and yes is not Up.
        buy A1 M2 up 10 expected=0.5 name=b                 -> filled order O2
        buy A1 M2 up 10 expected=0.5 max_bps=500 name=b     -> IDEMPOTENCY_KEY_REUSE
        buy A1 M2 yes 10 expected=0.5 name=b                -> IDEMPOTENCY_KEY_REUSE
        buy A1 M2 UP 10 expected=0.5 name=b                 -> replay of O2
        # One matching name does not excuse another that conflicts.
        buy A1 M2 up 10 expected=0.5 name=a,b               -> IDEMPOTENCY_KEY_REUSE
        "
    ));
}

#[test]
fn a_replay_depends_on_neither_the_market_nor_the_balance() {
    check(&format!(
        "{MARKETS}
        buy A1 M1 yes 1000 name=a       -> filled cash 500 order O1
        buy A1 M2 up 1000 name=b        -> filled cash 0 order O2
        buy A1 M1 yes 1000 name=a       -> replay of O1
        sell A1 M1 yes 1000 name=c      -> filled position 0 @0 closed order O3
        sell A1 M1 yes 1000 name=c      -> replay of O3
        book M1 yes stale
        buy A1 M1 yes 1000 name=a       -> replay of O1
        buy A1 M1 yes 1000              -> VENUE_UNAVAILABLE
        fees M1 unsupported
        buy A1 M1 yes 1000 name=a       -> replay of O1
        status M1 closed
        buy A1 M1 yes 1000 name=a       -> replay of O1
        buy A1 M1 yes 1001 name=a       -> IDEMPOTENCY_KEY_REUSE
        buy A1 M1 yes 1000              -> MARKET_CLOSED closed
        status M1 resolved
        buy A1 M1 yes 1000 name=a       -> replay of O1
        "
    ));
}

#[test]
fn a_refusal_is_not_remembered() {
    check(&format!(
        "{MARKETS}
        buy A1 M1 yes 1001 name=a       -> INSUFFICIENT_LIQUIDITY
        buy A1 M1 yes 10 name=a         -> filled order O1
        sell A1 M2 up 10 name=b         -> INSUFFICIENT_POSITION
        buy A1 M2 up 10                 -> filled order O2
        sell A1 M2 up 10 name=b         -> filled order O3
        buy A1 M1 maybe 10 name=c,d     -> OUTCOME_NOT_FOUND
        buy A1 M1 yes 10 name=c         -> filled order O4
        buy A1 M1 yes 10 name=d         -> filled order O5
        "
    ));
}
