//! Scenarios of orders that the venue delays.

use crate::script::check;

/// A venue whose market delays marketable orders for three seconds.
const VENUE: &str = "
    balance 100
    market M1 Yes No
    delay M1 3000
    fees M1 0.04 ^1
    book M1 yes bids 0.4x10 asks 0.5x4 0.52x3 0.6x100
    open A1                                 -> opened A1
";

#[track_caller]
fn check_delayed(script: &str) {
    check(&format!("{VENUE}{script}"));
}

#[test]
fn an_order_is_decided_on_the_book_after_the_wait() {
    check_delayed(
        "
        buy A1 M1 yes 4 name=a                  -> delayed O1 for 4 cash 2.04 shares 0
        show A1 M1 yes               -> has cash 100 reserved 2.04 available 97.96 open O1:4:DELAYED
        # A repeat finds the order that waits, and another order cannot have its name.
        buy A1 M1 yes 4 name=a                  -> replay of O1
        buy A1 M1 yes 5 name=a                  -> IDEMPOTENCY_KEY_REUSE
        # It is not on the book, and nobody cancels it.
        book M1 yes bids 0.4x10 asks 0.45x4
        match M1                                -> already
        cancel A1 O1                            -> ORDER_NOT_CANCELLABLE delayed
        cancel-all A1                           -> already
        book M1 yes bids 0.4x10 asks 0.55x10
        after 3
        due O1                                  -> filled O1 taken 4 delayed 3000 levels 0.55x4
        show A1 M1 yes                          -> has cash 97.7604 reserved 0 held 4 free 4 open
        due O1                                  -> already
        buy A1 M1 yes 4 name=a                  -> replay of O1
        ",
    );
}

#[test]
fn an_order_that_the_later_book_refuses_leaves_nothing() {
    check_delayed(
        "
        place A1 M1 yes buy market 4 0.5 name=a -> delayed O1 for 4 cash 2.04
        comment A1 O1 soon                      -> commented C1
        book M1 yes bids 0.4x10 asks 0.51x10
        due O1                            -> FOK_ORDER_NOT_FILLED_ERROR dropped O1
        show A1 M1 yes                          -> has cash 100 reserved 0 available 100 held 0 open
        cancel A1 O1                            -> ORDER_NOT_FOUND
        comment A1 O1 late                      -> ORDER_NOT_FOUND
        # Its name is free again, its id is not.
        place A1 M1 yes buy market 4 0.6 name=a -> delayed O2 for 4 cash 2.43998 shares 0
        due O2                                  -> filled O2 taken 4
        buy A1 M1 yes 4                         -> delayed O3
        book M1 yes bids 0.4x10 asks 0.51x3
        due O3                                  -> INSUFFICIENT_LIQUIDITY dropped O3
        buy A1 M1 yes 2 expected=0.51 max_bps=100  -> delayed O4
        book M1 yes bids 0.4x10 asks 0.53x3
        due O4                                  -> SLIPPAGE_EXCEEDED dropped O4
        buy A1 M1 yes 2                         -> delayed O5
        book M1 yes bids 0.4x10 asks 0.53x3 stale
        due O5                                  -> VENUE_UNAVAILABLE dropped O5
        book M1 yes bids 0.4x10 asks 0.53x3
        buy A1 M1 yes 2                         -> delayed O6
        status M1 paused
        due O6                                  -> MARKET_CLOSED dropped O6
        show A1 M1 yes                          -> has reserved 0 held 4 free 4 open
        ",
    );
}

#[test]
fn what_cannot_be_matched_at_once_waits_for_nothing() {
    check_delayed(
        "
        place A1 M1 yes buy limit 5 0.49                 -> pending O1
        place A1 M1 yes buy limit 5 0.49 tif=FAK         -> cancelled O2 end FAK_NOT_FILLED
        place A1 M1 yes buy limit 5 0.6 post_only        -> INVALID_POST_ONLY_ORDER
        place A1 M1 yes buy market 5 0.49                -> FOK_ORDER_NOT_FILLED_ERROR
        place A1 M1 yes buy market $0.00001              -> AMOUNT_TOO_SMALL
        # What refuses every order refuses it at once.
        buy A1 M1 yes 300                                -> delayed O3
        buy A1 M1 maybe 5                                -> OUTCOME_NOT_FOUND
        sell A1 M1 yes 5                                 -> INSUFFICIENT_POSITION
        place A1 M1 yes buy limit 5 0.605                -> INVALID_ORDER_MIN_TICK_SIZE
        place A1 M1 yes buy limit 1 0.6                  -> INVALID_ORDER_MIN_SIZE
        place A1 M1 yes buy limit 500 0.6                -> INSUFFICIENT_BALANCE
        book M1 yes bids 0.4x10 asks 0.5x4 stale
        place A1 M1 yes buy limit 5 0.6                  -> pending O4 awaits YES
        buy A1 M1 yes 5                                  -> VENUE_UNAVAILABLE
        delay M1 0
        book M1 yes bids 0.4x10 asks 0.5x4
        buy A1 M1 yes 1                                  -> filled 1
        ",
    );
}

#[test]
fn a_limit_order_rests_after_its_wait() {
    check_delayed(
        "
        place A1 M1 yes buy limit 10 0.52 -> delayed O1 for 10 cash 5.26995 shares 0
        book M1 yes bids 0.4x10 asks 0.5x4 0.55x10
        after 3
        due O1                    -> pending O1 taken 4 remaining 6 delayed 3000 notional 2 fee 0.04
        show A1 M1 yes    -> has cash 97.96 reserved 3.12 available 94.84 held 4 free 4 open O1:6
        match M1                  -> already
        book M1 yes bids 0.4x10 asks 0.51x10
        match M1                  -> fill O1:6:3.12:0
        # One that the book has left rests whole, and one that must fill at once ends.
        place A1 M1 yes buy limit 5 0.52        -> delayed O2
        place A1 M1 yes buy limit 5 0.52 tif=FAK -> delayed O3
        place A1 M1 yes buy limit 5 0.52 tif=FOK -> delayed O4
        book M1 yes bids 0.4x10 asks 0.55x10
        due O2                    -> pending O2 taken 0 remaining 5 delayed
        due O3                    -> cancelled O3 taken 0 delayed end FAK_NOT_FILLED
        due O4                    -> cancelled O4 taken 0 delayed end FOK_NOT_FILLED
        cancel A1 O2              -> ended O2 USER
        # So does one whose book is stale when its wait is over.
        place A1 M1 yes buy limit 5 0.6         -> delayed O5
        book M1 yes bids 0.4x10 asks 0.55x10 stale
        due O5                    -> pending O5 taken 0 awaits YES delayed
        book M1 yes bids 0.4x10 asks 0.55x10
        match M1                  -> admitted O5 fill O5:5:2.75:0.0495
        # Its time may come meanwhile.
        place A1 M1 yes buy limit 5 0.6 tif=GTD until=2 -> delayed O6
        after 3
        expire                    -> already
        due O6                    -> INVALID_ORDER_EXPIRATION dropped O6
        # That is said first, as it is of a new order.
        place A1 M1 yes buy limit 5 0.6 tif=GTD until=2 -> delayed O7
        after 3
        status M1 paused
        due O7                    -> INVALID_ORDER_EXPIRATION dropped O7
        show A1 M1 yes            -> has reserved 0 open
        ",
    );
}

#[test]
fn a_delayed_order_keeps_what_the_account_has_used() {
    check_delayed(
        "
        book M1 yes bids 0.4x10 asks 0.6x100
        place A1 M1 yes buy limit 7 0.5 -> pending O1
        book M1 yes bids 0.4x10 asks 0.5x20
        place A1 M1 yes buy limit 20 0.5 -> delayed O2
        match M1                        -> fill O1:7:3.5:0
        after 3
        # O2 is the account's only order on this side, and rests once it is decided.
        book M1 yes bids 0.4x10 asks 0.6x100
        due O2                          -> pending O2 taken 0 remaining 20
        # The same level comes back before it counts as new, with 2 shares more.
        book M1 yes bids 0.4x10 asks 0.5x22
        match M1                        -> fill O2:15:7.5:0
        ",
    );
}

#[test]
fn a_clock_that_was_set_back_makes_the_wait_short() {
    check_delayed(
        "
        buy A1 M1 yes 1                         -> delayed O1
        buy A1 M1 yes 1                         -> delayed O2
        after -5
        due O1                                  -> filled O1 taken 1 delayed 1 levels
        after 5000000
        due O2                                  -> filled O2 taken 1 delayed 4294967295 levels
        ",
    );
}

#[test]
fn an_amount_buys_what_it_buys_after_the_wait() {
    check_delayed(
        "
        place A1 M1 yes buy market $2           -> delayed O1 for 4 cash 2.04 shares 0
        book M1 yes bids 0.4x10 asks 0.25x100
        due O1                                  -> filled O1 taken 8 notional 2 fee 0.06
        place A1 M1 yes buy market $2 0.3       -> delayed O2 for 8 cash 2.06 shares 0
        book M1 yes bids 0.4x10 asks 0.25x4 0.31x100
        due O2                                  -> FOK_ORDER_NOT_FILLED_ERROR dropped O2
        place A1 M1 yes buy market $2 0.3 tif=FAK -> delayed O3 for 4 cash 2.03 shares 0
        due O3                                  -> filled O3 taken 4 remaining 0
        place A1 M1 yes buy market $98          -> INSUFFICIENT_BALANCE
        ",
    );
}

#[test]
fn a_sale_reserves_its_shares_and_several_orders_share_an_account() {
    check_delayed(
        "
        delay M1 0
        buy A1 M1 yes 7                         -> filled 7
        delay M1 250
        sell A1 M1 yes 5 name=s                 -> delayed O2 for 5 cash 0 shares 5
        show A1 M1 yes                          -> has reserved 0 held 7 free 2 open O2:5:DELAYED
        sell A1 M1 yes 3                        -> INSUFFICIENT_POSITION
        sell A1 M1 yes 2                        -> delayed O3
        due O3                                  -> filled O3 taken 2
        book M1 yes bids 0.3x10 asks 0.9x10
        due O2                                  -> filled O2 taken 5 levels 0.3x5
        show A1 M1 yes                          -> has held 0 free 0 open
        ",
    );
}

#[test]
fn an_order_may_need_all_that_it_holds_back() {
    check_delayed(
        "
        place A1 M1 yes buy limit 164 0.6       -> delayed O1 for 164
        due O1                                  -> pending O1 taken 107 remaining 57
        cancel A1 O1                            -> ended O1 USER
        sell A1 M1 yes 107                      -> delayed O2 for 107 cash 0 shares 107
        book M1 yes bids 0.4x200 asks 0.6x100
        due O2                                  -> filled O2 taken 107
        ",
    );
}

#[test]
fn delayed_orders_count_as_open_and_end_with_their_market() {
    check_delayed(
        "
        rules open 2
        buy A1 M1 yes 1 name=a                  -> delayed O1
        place A1 M1 yes buy limit 5 0.6         -> delayed O2
        buy A1 M1 yes 1                         -> OPEN_ORDER_LIMIT_EXCEEDED
        place A1 M1 yes buy limit 5 0.3         -> OPEN_ORDER_LIMIT_EXCEEDED
        restart
        show A1 M1 yes                        -> has reserved 3.55998 open O1:1:DELAYED O2:5:DELAYED
        # Nobody holds any shares, so the market is done once the orders have ended.
        settle M1 1 0                           -> pays ended O1 RESOLVED ended O2 RESOLVED
        settle M1 1 0                           -> settled
        due O1                                  -> already
        buy A1 M1 yes 1 name=a                  -> replay of O1
        show A1 M1 yes                          -> has cash 100 reserved 0 open
        cancel A1 O1                            -> ORDER_NOT_CANCELLABLE expired
        ",
    );
}
