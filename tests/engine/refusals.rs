//! The order of refusals: an order that breaks several rules is refused for the first one.

use crate::script::check;

/// Each order breaks one rule fewer than the one above it.
#[test]
fn a_sale_is_refused_for_the_first_rule_it_breaks() {
    check(
        "
        market M0 Yes No
        book M0 yes asks 0.5x1
        open A1                                 -> opened A1
        buy A1 M0 yes 1 name=a                  -> filled
        sell A9 M1 maybe 10 expected=0.99 name=a    -> ACCOUNT_NOT_FOUND
        sell A1 M1 maybe 10 expected=0.99 name=a    -> IDEMPOTENCY_KEY_REUSE
        sell A1 M1 maybe 10 expected=0.99       -> MARKET_NOT_FOUND
        market M1 Yes No
        status M1 closed
        fees M1 unsupported
        sell A1 M1 maybe 10 expected=0.99       -> OUTCOME_NOT_FOUND of Yes No
        sell A1 M1 yes 10 expected=0.99         -> MARKET_CLOSED closed
        status M1 placeholder
        sell A1 M1 yes 10 expected=0.99         -> MARKET_UNNAMED
        status M1 open
        sell A1 M1 yes 10 expected=0.99         -> FEES_UNSUPPORTED
        fees M1 0.07 ^1
        sell A1 M1 yes 10 expected=0.99         -> VENUE_UNAVAILABLE
        book M1 yes bids 0.4x1 0.3x1 asks 0.5x10 stale
        sell A1 M1 yes 10 expected=0.99         -> VENUE_UNAVAILABLE
        book M1 yes bids 0.4x1 0.3x1 asks 0.5x10
        sell A1 M1 yes 10 expected=0.99         -> INSUFFICIENT_POSITION held 0 asked 10
        buy A1 M1 yes 10                        -> filled
        sell A1 M1 yes 10.000001 expected=0.99  -> INSUFFICIENT_POSITION held 10 asked 10.000001
        sell A1 M1 yes 10 expected=0.99         -> INSUFFICIENT_LIQUIDITY available 2 asked 10
        book M1 yes bids 0.4x9 0.3x1
        sell A1 M1 yes 10 expected=0.99 -> SLIPPAGE_EXCEEDED price 0.39 reference 0.99 max_bps 500
        sell A1 M1 yes 10                       -> filled 10 @0.39
        ",
    );
}

#[test]
fn a_purchase_is_refused_for_the_first_rule_it_breaks() {
    check(
        "
        balance 3
        market M1 Yes No
        status M1 paused
        open A1                                 -> opened A1
        buy A1 M1 maybe 10 max_bps=0            -> OUTCOME_NOT_FOUND
        buy A1 M1 yes 10 max_bps=0              -> MARKET_CLOSED paused
        status M1 open
        buy A1 M1 yes 10 max_bps=0              -> VENUE_UNAVAILABLE
        book M1 yes bids 0.3x10 asks 0.4x5
        buy A1 M1 yes 10 max_bps=0              -> INSUFFICIENT_LIQUIDITY available 5 asked 10
        book M1 yes bids 0.3x10 asks 0.4x5 0.5x100
        buy A1 M1 yes 10 max_bps=0  -> SLIPPAGE_EXCEEDED price 0.45 reference 0.4 max_bps 0
        buy A1 M1 yes 10                        -> INSUFFICIENT_BALANCE needed 4.5 available 3
        buy A1 M1 yes 7                         -> filled 7 cash 0
        ",
    );
}

#[test]
fn only_an_open_market_takes_orders() {
    check(
        "
        market M1 Yes No
        book M1 yes bids 0.3x10 asks 0.4x5
        open A1                         -> opened A1
        buy A1 M1 yes 1                 -> filled
        status M1 paused
        buy A1 M1 yes 1                 -> MARKET_CLOSED paused
        status M1 closed
        buy A1 M1 yes 1                 -> MARKET_CLOSED closed
        sell A1 M1 yes 1                -> MARKET_CLOSED closed
        # A venue may reopen a market that it closed by mistake.
        status M1 open
        buy A1 M1 yes 1                 -> filled
        status M1 resolved
        buy A1 M1 yes 1                 -> MARKET_CLOSED resolved
        status M1 open
        buy A1 M1 yes 1                 -> MARKET_CLOSED resolved
        ",
    );
}

#[test]
fn nothing_fills_on_a_stale_book() {
    check(
        "
        market M1 Yes No
        market M3 Ann Bob Cid
        open A1                         -> opened A1
        book M1 no bids 0.4x10 asks 0.5x10 stale
        # Not on the stale book, nor on its mirror, nor on another outcome's book of three.
        buy A1 M1 no 1                  -> VENUE_UNAVAILABLE
        buy A1 M1 yes 1                 -> VENUE_UNAVAILABLE
        book M3 ann bids 0.4x10 asks 0.5x10
        buy A1 M3 bob 1                 -> VENUE_UNAVAILABLE
        # The other outcome's fresh book does not replace an outcome's own stale one.
        book M1 yes bids 0.5x10 asks 0.6x10 stale
        book M1 no bids 0.4x10 asks 0.5x10
        buy A1 M1 yes 1                 -> VENUE_UNAVAILABLE
        buy A1 M1 no 1                  -> filled 1 @0.5
        book M1 yes bids 0.5x10 asks 0.6x10
        buy A1 M1 yes 1                 -> filled 1 @0.6
        # An empty fresh book counts as a book.
        book M1 yes
        buy A1 M1 yes 1                 -> INSUFFICIENT_LIQUIDITY available 0 asked 1
        ",
    );
}

#[test]
fn slippage_is_compared_exactly() {
    check(
        "
        market M1 Yes No
        open A1                                     -> opened A1
        # The average is 0.50005: one basis point, exactly.
        book M1 yes asks 0.5x5 0.5001x100
        buy A1 M1 yes 10 expected=0.5 max_bps=1     -> filled @0.50005 slippage 1
        buy A1 M1 yes 10 max_bps=1                  -> filled slippage 1
        buy A1 M1 yes 10 max_bps=0  -> SLIPPAGE_EXCEEDED reference 0.5 max_bps 0
        # One micro-share more at the worse price: the shown average is still 0.50005.
        book M1 yes asks 0.5x4.999999 0.5001x100
        buy A1 M1 yes 10 expected=0.5 max_bps=1 \
            -> SLIPPAGE_EXCEEDED price 0.50005 reference 0.5 max_bps 1
        buy A1 M1 yes 10 max_bps=1  -> SLIPPAGE_EXCEEDED price 0.50005 reference 0.5 max_bps 1
        buy A1 M1 yes 10 max_bps=2                  -> filled slippage 2

        # The same on the other side.
        book M1 yes bids 0.5x5 0.4999x100
        sell A1 M1 yes 10 expected=0.5 max_bps=1    -> filled @0.49995 slippage 1
        book M1 yes bids 0.5x4.999999 0.4999x100
        sell A1 M1 yes 10 expected=0.5 max_bps=1    -> SLIPPAGE_EXCEEDED reference 0.5 max_bps 1
        sell A1 M1 yes 10                           -> filled slippage 2
        ",
    );
}

#[test]
fn slippage_is_measured_from_the_expected_price() {
    check(
        "
        market M1 Yes No
        open A1                                     -> opened A1
        # With an expected price and no bound, 500 basis points are allowed.
        book M1 yes asks 0.525x100
        buy A1 M1 yes 10 expected=0.5               -> filled slippage 500
        book M1 yes asks 0.5251x100
        buy A1 M1 yes 10 expected=0.5   -> SLIPPAGE_EXCEEDED price 0.5251 reference 0.5 max_bps 500
        buy A1 M1 yes 10 expected=0.5 max_bps=502   -> filled slippage 502
        # With neither there is no check, however many levels the order takes.
        book M1 yes bids 0.9x1 0.01x99 asks 0.1x1 0.99x99
        buy A1 M1 yes 100                           -> filled 100 @0.9811 slippage 88110
        sell A1 M1 yes 100                          -> filled 100 @0.0189 slippage 9790
        # A better price than expected is no slippage.
        book M1 yes bids 0.4x100 asks 0.5x100
        buy A1 M1 yes 10 expected=0.6 max_bps=0     -> filled @0.5 slippage 0
        sell A1 M1 yes 10 expected=0.3 max_bps=0    -> filled @0.4 slippage 0
        buy A1 M1 yes 10 expected=1 max_bps=0       -> filled @0.5 slippage 0
        # From 0, every price is infinitely worse to a buyer and better to a seller.
        buy A1 M1 yes 10 expected=0 max_bps=10000   -> SLIPPAGE_EXCEEDED reference 0 max_bps 10000
        buy A1 M1 yes 10 expected=0                 -> SLIPPAGE_EXCEEDED reference 0 max_bps 500
        sell A1 M1 yes 10 expected=0                -> filled @0.4 slippage none
        # A bound of 100 % still refuses a purchase at more than twice the price.
        buy A1 M1 yes 10 expected=0.25 max_bps=10000    -> filled slippage 10000
        buy A1 M1 yes 10 expected=0.249999 max_bps=10000 -> SLIPPAGE_EXCEEDED
        ",
    );
}
