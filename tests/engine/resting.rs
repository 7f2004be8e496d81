//! Scenarios of orders that may rest: what they take, hold back, and leave.

use crate::script::check;

#[test]
fn a_crossing_order_takes_what_its_limit_reaches_and_rests() {
    check(
        "
        balance 100
        market M1 Yes No
        fees M1 0.04 ^1
        book M1 yes bids 0.4x10 asks 0.5x4 0.52x3 0.6x100
        open A1                                 -> opened A1
    place A1 M1 yes buy limit 10 0.52 -> pending O1 notional 3.56 fee 0.06995 levels 0.5x4 0.52x3
        show A1 M1 yes -> has cash 96.37005 reserved 1.56 available 94.81005 held 7 free 7 open O1:3
        # What it took is used; the rest fills only with what is added, at its own limit,
        # free of fees.
        match M1                                -> already
        book M1 yes bids 0.4x10 asks 0.5x5 0.52x3 0.6x100
        match M1 yes                            -> fill O1:1:0.52:0
        show A1 M1 yes -> has cash 95.85005 reserved 1.04 available 94.81005 held 8 free 8 open O1:2
        book M1 yes asks 0.51x100
        match M1                                -> fill O1:2:1.04:0
        show A1 M1 yes          -> has cash 94.81005 reserved 0 available 94.81005 held 10 open
        cancel A1 O1                            -> ORDER_NOT_CANCELLABLE filled
        ",
    );
}

#[test]
fn an_order_that_must_fill_at_once_never_rests() {
    check(
        "
        balance 100
        market M1 Yes No
        book M1 yes bids 0.4x10 asks 0.5x4 0.6x100
        open A1                                         -> opened A1
        place A1 M1 yes buy limit 10 0.5 tif=FAK -> filled O1 taken 4 remaining 6 end FAK_NOT_FILLED
        place A1 M1 yes buy limit 10 0.49 tif=IOC       -> cancelled O2 taken 0 end FAK_NOT_FILLED
        place A1 M1 yes buy limit 10 0.5 tif=FOK        -> cancelled O3 taken 0 end FOK_NOT_FILLED
        place A1 M1 yes buy limit 10 0.6 tif=FOK        -> filled O4 taken 10 end NONE
        place A1 M1 yes buy market 10 0.5 tif=FAK       -> filled O5 taken 4 remaining 6
        place A1 M1 yes buy market 10 0.49 tif=FAK      -> cancelled O6 taken 0
        place A1 M1 yes buy market 10 0.5               -> FOK_ORDER_NOT_FILLED_ERROR
        place A1 M1 yes buy market 10 0.6 tif=GTC       -> filled 10 order O7
        place A1 M1 yes buy market 105                  -> INSUFFICIENT_LIQUIDITY
        place A1 M1 yes sell market 12 tif=FAK          -> filled O8 taken 10 remaining 2
        show A1 M1 yes                                  -> has reserved 0 held 18 free 18 open
        cancel A1 O2                                    -> ORDER_NOT_CANCELLABLE cancelled
        cancel A1 O7                                    -> ORDER_NOT_CANCELLABLE filled
        ",
    );
}

#[test]
fn an_amount_buys_the_most_shares_that_cost_no_more() {
    check(
        "
        balance 5000
        market M1 Yes No
        book M1 yes bids 0.4x10 asks 0.51x2 0.52x7
        open A1                                         -> opened A1
        place A1 M1 yes buy market $2                   -> filled 3.8846 notional 1.999992
        place A1 M1 yes buy market $2 0.51              -> FOK_ORDER_NOT_FILLED_ERROR
        place A1 M1 yes buy market $2 0.51 tif=FAK      -> filled O2 taken 2 remaining 0 end NONE
        place A1 M1 yes buy market $5                   -> FOK_ORDER_NOT_FILLED_ERROR
        place A1 M1 yes buy market $5 tif=FAK           -> filled O3 taken 9
        place A1 M1 yes buy market $0.00005             -> AMOUNT_TOO_SMALL
        place A1 M1 yes sell market $5                  -> INVALID_ORDER_PAYLOAD
        place A1 M1 yes buy limit $5 0.5                -> INVALID_ORDER_PAYLOAD
        place A1 M1 yes buy market 5 amount=5           -> INVALID_ORDER_PAYLOAD
        # Nothing is offered within the cap, or at all.
    place A1 M1 yes buy market $2 0.5 tif=FAK -> cancelled O4 taken 0 remaining 0 end FAK_NOT_FILLED
        book M1 yes bids 0.4x10
        place A1 M1 yes buy market $2 tif=FAK           -> cancelled O5 taken 0 end FAK_NOT_FILLED
        show A1 M1 yes                                  -> has reserved 0 open
        ",
    );
}

/// No order may be for more than a million shares, whatever an amount would buy.
#[test]
fn an_amount_that_buys_too_many_shares_is_refused() {
    check(
        "
        balance 5000
        market M1 Yes No
        tick M1 0.001
        book M1 yes asks 0.001x3000000
        open A1                                         -> opened A1
        place A1 M1 yes buy market $1000                -> filled 1000000
        place A1 M1 yes buy market $1000.001            -> FOK_ORDER_NOT_FILLED_ERROR
        place A1 M1 yes buy market $2000 tif=FAK        -> filled O2 taken 1000000
        ",
    );
}

#[test]
fn what_is_held_back_is_not_free() {
    check(
        "
        balance 10
        market M1 Yes No
        book M1 yes bids 0.4x100 asks 0.5x100
        open A1                                     -> opened A1
        buy A1 M1 yes 6                             -> filled 6 cash 7
        place A1 M1 yes buy limit 10 0.4            -> pending O2 taken 0
        show A1 M1 yes                              -> has cash 7 reserved 4 available 3
        buy A1 M1 yes 6.000002 -> INSUFFICIENT_BALANCE needed 3.000001 available 3
        place A1 M1 yes buy market 7                -> INSUFFICIENT_BALANCE needed 3.5 available 3
        place A1 M1 yes buy limit 8 0.4             -> INSUFFICIENT_BALANCE needed 3.2 available 3
        place A1 M1 yes buy limit 10 0.4            -> INSUFFICIENT_BALANCE needed 4 available 3
        place A1 M1 yes sell limit 5 0.9            -> pending O3
        show A1 M1 yes                              -> has held 6 free 1 open O2:10 O3:5
        sell A1 M1 yes 1.000001                     -> INSUFFICIENT_POSITION held 1 asked 1.000001
        place A1 M1 yes sell market 2 tif=FAK       -> INSUFFICIENT_POSITION held 1 asked 2
        place A1 M1 yes sell limit 5 0.9            -> INSUFFICIENT_POSITION held 1 asked 5
        sell A1 M1 yes 1                            -> filled 1
        cancel A1 O3                                -> ended O3 USER
        cancel A1 O3                                -> ORDER_NOT_CANCELLABLE cancelled
        show A1 M1 yes                              -> has held 5 free 5 open O2:10
        sell A1 M1 yes 5                            -> filled 5 position 0
        cancel A1 O2                                -> ended O2 USER
        show A1 M1 yes                              -> has cash 9.4 reserved 0 available 9.4 held 0
        cancel A2 O2                                -> ORDER_NOT_FOUND
        cancel A1 O9                                -> ORDER_NOT_FOUND
        ",
    );
}

/// Each line fails the check of its rule and of all later ones that it can.
#[test]
fn the_rules_are_checked_in_order() {
    check(
        "
        balance 10
        rules open 1
        market M1 Yes No
        market M2 Yes No
        status M2 closed
        market M3 Yes No
        book M3 yes asks 0.5x10 stale
        market M4 Yes No
        open A1                                                 -> opened A1
        book M1 yes bids 0.4x100 asks 0.5x100
        place A1 M1 yes buy limit 5 0.4 name=a                  -> pending O1
        # Names, before the fields.
        place A1 M1 yes buy limit 5 0.4 tif=FAK post_only name=a    -> IDEMPOTENCY_KEY_REUSE
        # The fields, before the market.
        place A1 M9 yes buy limit 5 0.4 tif=FAK post_only       -> INVALID_POST_ONLY_ORDER_TYPE
        place A1 M9 yes buy market 5 post_only                  -> INVALID_POST_ONLY_ORDER_TYPE
        place A1 M9 yes buy limit 5 0.4 tif=GTD                 -> INVALID_ORDER_EXPIRATION
        place A1 M9 yes buy limit 5 0.4 tif=GTD until=0         -> INVALID_ORDER_EXPIRATION
        place A1 M9 yes buy limit 5 0.4 until=60                -> INVALID_ORDER_EXPIRATION
        place A1 M9 yes buy limit 5 0.4 tif=GTC until=60        -> INVALID_ORDER_EXPIRATION
        place A1 M9 yes buy limit 5 0.4 tif=FAK post_only until=60  -> INVALID_ORDER_EXPIRATION
        place A1 M9 yes buy market 5 tif=FOK until=60           -> INVALID_ORDER_EXPIRATION
        place A1 M9 yes buy limit 5 0.4 at=0                    -> MARKET_NOT_FOUND
        place A1 M9 yes buy market 5 amount=5                   -> INVALID_ORDER_PAYLOAD
        place A1 M9 yes buy limit 5                             -> INVALID_ORDER_PAYLOAD
        # The market, before the tick.
        place A1 M9 yes buy limit 5 0.405                       -> MARKET_NOT_FOUND
        place A1 M1 maybe buy limit 5 0.405                     -> OUTCOME_NOT_FOUND
        place A1 M2 yes buy limit 5 0.405                       -> MARKET_CLOSED closed
        # The tick, before the size.
        place A1 M1 yes buy limit 4 0.405                       -> INVALID_ORDER_MIN_TICK_SIZE
        place A1 M1 yes buy limit 4 0                           -> INVALID_ORDER_MIN_TICK_SIZE
        place A1 M1 yes buy limit 4 1                           -> INVALID_ORDER_MIN_TICK_SIZE
        # The size, before the book.
        place A1 M3 yes buy limit 4 0.4 tif=FAK                 -> INVALID_ORDER_MIN_SIZE
        place A1 M3 yes sell limit 4.999999 0.4                 -> INVALID_ORDER_MIN_SIZE
        # The book, before what is held, if the order is immediate.
        place A1 M3 yes sell limit 5 0.4 tif=FAK                -> VENUE_UNAVAILABLE
        place A1 M4 yes sell limit 5 0.4 tif=FOK                -> VENUE_UNAVAILABLE
        place A1 M3 yes sell market 5                           -> VENUE_UNAVAILABLE
        # What is held, before the number of open orders.
        place A1 M1 yes sell limit 5 0.4 post_only -> INSUFFICIENT_POSITION held 0 asked 5
        # The number, before post-only.
        place A1 M1 yes buy limit 50 0.5 post_only              -> OPEN_ORDER_LIMIT_EXCEEDED
        place A1 M3 yes buy limit 50 0.5                        -> OPEN_ORDER_LIMIT_EXCEEDED
        # What never rests does not count.
        place A1 M1 yes buy limit 5 0.4 tif=FAK                 -> cancelled O2
        rules open 2
        # Post-only, before the slippage and the balance.
        place A1 M1 yes buy limit 50 0.5 post_only expected=0.4 -> INVALID_POST_ONLY_ORDER touch 0.5
        # The slippage, before the balance.
        place A1 M1 yes buy limit 50 0.5 expected=0.4           -> SLIPPAGE_EXCEEDED
        place A1 M1 yes buy market 50 0.5 expected=0.4          -> SLIPPAGE_EXCEEDED
        place A1 M1 yes buy market 101 0.5 expected=0.4         -> FOK_ORDER_NOT_FILLED_ERROR
        place A1 M1 yes buy limit 50 0.5 expected=0.5 -> INSUFFICIENT_BALANCE needed 25 available 8
        place A9 M1 yes buy limit 5 0.4                         -> ACCOUNT_NOT_FOUND
        settle M1 1 0                                           -> pays ended O1 RESOLVED
        settle M1 1 0                                           -> settled
        place A1 M1 maybe buy limit 5 0.405                     -> MARKET_CLOSED resolved
        ",
    );
}

#[test]
fn all_that_is_held_may_be_below_the_minimum() {
    check(
        "
        market M1 Yes No
        book M1 yes bids 0.4x100 asks 0.5x100
        open A1                                     -> opened A1
        buy A1 M1 yes 3                             -> filled 3
        place A1 M1 yes sell limit 2 0.6            -> INVALID_ORDER_MIN_SIZE
        place A1 M1 yes sell limit 3 0.6            -> pending O2
        place A1 M1 yes sell limit 3 0.6            -> INSUFFICIENT_POSITION held 0 asked 3
        book M1 yes bids 0.61x1 asks 0.7x1
        match M1                                    -> fill O2:1:0.6:0
        show A1 M1 yes                              -> has held 2 free 0 open O2:2
        tick M1 0.1
        book M1 yes bids 0.61x3 asks 0.7x1
        match M1                                    -> fill O2:2:1.2:0
        show A1 M1 yes                              -> has held 0 free 0 open
        ",
    );
}

#[test]
fn a_good_til_date_order_ends_at_its_time() {
    check(
        "
        balance 100
        market M1 Yes No
        book M1 yes asks 0.5x100
        open A1                                             -> opened A1
        place A1 M1 yes buy limit 10 0.4 tif=GTD until=60 name=a   -> pending O1
        place A1 M1 yes buy limit 10 0.4 tif=GTD until=61   -> pending O2
        place A1 M1 yes buy limit 10 0.4                    -> pending O3
        after 59
        expire                                              -> already
        after 1
        # The timer is late: a match fills nothing that has expired.
        book M1 yes asks 0.4x20
        match M1                                            -> fill O2:10:4:0 fill O3:10:4:0
        expire                                              -> ended O1 GTD_EXPIRED
        expire                                              -> already
        cancel A1 O1                                        -> ORDER_NOT_CANCELLABLE cancelled
        show A1 M1 yes -> has cash 92 reserved 0 available 92 open
        # A replay is found after its time.
        place A1 M1 yes buy limit 10 0.4 tif=GTD at=1800000060 name=a   -> replay of O1
        place A1 M1 yes buy limit 10 0.4 tif=GTD at=1800000060 name=b   -> INVALID_ORDER_EXPIRATION
        ",
    );
}

#[test]
fn post_only_never_takes() {
    check(
        "
        balance 100
        market M1 Yes No
        book M1 yes bids 0.4x10 asks 0.5x10
        open A1                                             -> opened A1
        place A1 M1 yes buy limit 10 0.5 post_only          -> INVALID_POST_ONLY_ORDER touch 0.5
        place A1 M1 yes buy limit 10 0.49 post_only         -> pending O1
        buy A1 M1 yes 10                                    -> filled 10
        place A1 M1 yes sell limit 10 0.4 post_only         -> INVALID_POST_ONLY_ORDER touch 0.4
        place A1 M1 yes sell limit 10 0.41 tif=GTD until=9 post_only    -> pending O3
        # Once they rest, they fill like others.
        book M1 yes asks 0.45x10
        match M1                                            -> fill O1:10:4.9:0
        book M1 yes bids 0.45x10
        match M1                                            -> fill O3:10:4.1:0
        ",
    );
}

#[test]
fn an_order_placed_on_a_stale_book_meets_the_first_fresh_one_as_a_new_one() {
    check(
        "
        balance 20
        market M1 Yes No
        fees M1 0.04 ^1
        book M1 yes asks 0.4x10 stale
        open A1                                             -> opened A1
        place A1 M1 yes buy limit 10 0.5                    -> pending O1 taken 0 awaits YES fee 0
        place A1 M1 yes buy limit 10 0.6 post_only          -> pending O2 awaits YES
        place A1 M1 yes buy limit 10 0.3 tif=GTD until=60   -> pending O3 awaits YES
        place A1 M1 yes buy limit 5 0.2                     -> pending O4 awaits YES
        show A1 M1 yes -> has cash 20 reserved 15 available 5
        show A1 M1 yes -> has open O1:10:AWAITS O2:10:AWAITS O3:10:AWAITS O4:5:AWAITS
        match M1                                            -> already
        cancel A1 O4                                        -> ended O4 USER
        after 60
        # At the book's price and with the taker's fee, as far as it goes; then it rests.
        book M1 yes asks 0.4x6 0.55x1
    match M1 -> ended O2 POST_ONLY_WOULD_CROSS admitted O1 fill O1:6:2.4:0.0576 ended O3 GTD_EXPIRED
        match M1                                            -> already
        show A1 M1 yes      -> has cash 17.5424 reserved 2 available 15.5424 held 6 open O1:4
        book M1 yes asks 0.4x7
        match M1                                            -> fill O1:1:0.5:0
        ",
    );
}

#[test]
fn an_order_that_cannot_pay_its_fee_ends_when_it_meets_its_book() {
    check(
        "
        balance 10
        market M1 Yes No
        fees M1 0.1 ^1
        book M1 yes asks 0.5x20 stale
        open A1                                     -> opened A1
        place A1 M1 yes buy limit 20 0.5            -> pending O1 awaits YES
        book M1 yes asks 0.5x20
        match M1                                    -> ended O1 INSUFFICIENT_BALANCE
        show A1 M1 yes                              -> has cash 10 reserved 0 available 10 open
        # What ends earlier in the same visit frees what it held back.
        book M1 yes asks 0.5x20 stale
        place A1 M1 yes buy limit 10 0.5 tif=GTD until=1    -> pending O2 awaits YES
        place A1 M1 yes buy limit 10 0.5            -> pending O3 awaits YES
        after 1
        book M1 yes asks 0.5x20
        match M1 -> ended O2 GTD_EXPIRED admitted O3 fill O3:10:5:0.25
        open A2                                     -> opened A2
        book M1 yes asks 0.5x20 stale
        place A2 M1 yes buy limit 10 0.5 post_only  -> pending O4 awaits YES
        place A2 M1 yes buy limit 10 0.5            -> pending O5 awaits YES
        book M1 yes asks 0.5x20
        match M1 -> ended O4 POST_ONLY_WOULD_CROSS admitted O5 fill O5:10:5:0.25
        show A2 M1 yes                              -> has cash 4.75 reserved 0 open
        ",
    );
}

#[test]
fn orders_that_fill_in_one_visit_share_what_the_account_has() {
    check(
        "
        balance 20
        market M1 Yes No
        fees M1 0.1 ^1
        # What the first no longer holds back pays for the second.
        open A1                                     -> opened A1
        book M1 yes asks 0.3x20 stale
        place A1 M1 yes buy limit 20 0.5            -> pending O1 awaits YES
        place A1 M1 yes buy limit 20 0.5            -> pending O2 awaits YES
        book M1 yes asks 0.3x20
        match M1 -> admitted O1 O2 fill O1:20:6:0.42 O2:20:6:0.42
        show A1 M1 yes                              -> has cash 7.16 reserved 0 available 7.16
        # What the rest of the first still holds back does not.
        open A2                                     -> opened A2
        book M1 yes asks 0.5x10 stale
        place A2 M1 yes buy limit 12 0.5            -> pending O3 awaits YES
        place A2 M1 yes buy limit 27.4 0.5          -> pending O4 awaits YES
        book M1 yes asks 0.5x10
        match M1 -> admitted O3 fill O3:10:5:0.25 ended O4 INSUFFICIENT_BALANCE
        show A2 M1 yes                  -> has cash 14.75 reserved 1 available 13.75 open O3:2
        ",
    );
}

#[test]
fn a_mirrored_book_fills_the_other_outcome() {
    check(
        "
        balance 100
        market M1 Yes No
        book M1 yes bids 0.4x10 asks 0.6x10
        open A1                                     -> opened A1
        place A1 M1 no buy limit 10 0.5             -> pending O1 taken 0
        place A1 M1 no buy limit 10 0.6             -> filled O2 taken 10 notional 6
        place A1 M1 no sell limit 10 0.7            -> pending O3
        book M1 yes bids 0.52x4 asks 0.6x10
        match M1 yes                                -> fill O1:4:2:0
        book M1 yes bids 0.52x4 asks 0.3x7
        match M1 yes                                -> fill O3:7:4.9:0
        ",
    );
}

#[test]
fn nothing_fills_while_the_market_does_not_trade() {
    check(
        "
        balance 100
        market M1 Yes No
        book M1 yes asks 0.6x10
        open A1                                     -> opened A1
        place A1 M1 yes buy limit 10 0.5            -> pending O1
        book M1 yes asks 0.5x10 stale
        match M1                                    -> already
        book M1 yes asks 0.5x10
        status M1 paused
        match M1                                    -> already
        status M1 closed
        match M1                                    -> already
        status M1 open
        fees M1 unsupported
        match M1                                    -> already
        fees M1 free
        match M1                                    -> fill O1:10:5:0
        ",
    );
}

#[test]
fn a_settlement_ends_the_orders_and_then_pays() {
    check(
        "
        balance 100
        market M1 Yes No
        market M2 Yes No
        book M1 yes bids 0.4x100 asks 0.5x100
        book M2 yes bids 0.4x100 asks 0.5x100
        open A1                                     -> opened A1
        open A2                                     -> opened A2
        buy A1 M1 yes 10                            -> filled 10
        place A1 M1 yes sell limit 10 0.9           -> pending O2
        place A1 M1 no buy limit 10 0.2 name=a      -> pending O3
        place A2 M1 yes buy limit 10 0.2            -> pending O4
        place A2 M2 yes buy limit 10 0.2            -> pending O5
        settle M1 1 0       -> pays ended O4 RESOLVED ended O2 RESOLVED ended O3 RESOLVED
        book M1 yes asks 0.1x100
        match M1                                    -> already
        place A1 M1 yes buy limit 10 0.5            -> MARKET_CLOSED resolved
        place A1 M1 no buy limit 10 0.2 name=a      -> replay of O3
        cancel A1 O2                                -> ORDER_NOT_CANCELLABLE expired
        settle M1 1 0                               -> pays A1:0:10:10:105 settled
        settle M1 1 0                               -> already
        show A1 M1 yes                              -> has cash 105 reserved 0 held 0 open
        show A2 M2 yes                              -> has cash 100 reserved 2 open O5:10
        ",
    );
}

#[test]
fn a_replay_gives_the_first_answer() {
    check(
        "
        balance 100
        market M1 Yes No
        book M1 yes bids 0.4x10 asks 0.5x4
        open A1                                         -> opened A1
        place A1 M1 yes buy limit 10 0.5 name=a         -> pending O1 taken 4
        place A1 M1 yes buy limit 10 0.5 name=a,b       -> IDEMPOTENCY_KEY_REUSE
        place A1 M1 yes buy limit 10 0.5 name=b         -> pending O2 taken 4
        place A1 M1 yes buy limit 10 0.5 name=a,b       -> IDEMPOTENCY_KEY_REUSE
        place A1 M1 yes buy limit 10 0.5 tif=FAK name=c -> filled O3 taken 4
        place A1 M1 yes buy limit 10 0.4 tif=FOK name=d -> cancelled O4
        place A1 M1 yes buy market 2 name=e             -> filled 2 order O5
        # The same request, however it is sent.
        buy A1 M1 yes 2 name=e                          -> replay of O5
        buy A1 M1 yes 10 name=a                         -> IDEMPOTENCY_KEY_REUSE
        book M1 yes bids 0.4x10 asks 0.5x9
        match M1                                        -> fill O1:5:2.5:0
        place A1 M1 yes buy limit 10 0.5 name=a         -> replay of O1
        cancel A1 O1                                    -> ended O1 USER
        place A1 M1 yes buy limit 10 0.5 name=a         -> replay of O1
        restart
        place A1 M1 yes buy limit 10 0.5 name=a         -> replay of O1
        place A1 M1 yes buy limit 10 0.5 tif=FAK name=c -> replay of O3
        place A1 M1 yes buy limit 10 0.4 tif=FOK name=d -> replay of O4
        ",
    );
}

/// Orders are forgotten in the order in which they finished; open ones and their names stay.
#[test]
fn an_open_order_is_never_forgotten() {
    check(
        "
        balance 100
        rules orders 2
        market M1 Yes No
        book M1 yes bids 0.4x10 asks 0.5x100
        open A1                                         -> opened A1
        place A1 M1 yes buy limit 10 0.3 name=a         -> pending O1
        place A1 M1 yes buy limit 10 0.3 name=b         -> pending O2
        buy A1 M1 yes 1                                 -> filled 1 order O3
        cancel A1 O2                                    -> ended O2 USER
        place A1 M1 yes buy limit 10 0.2 name=c         -> pending O4 forgets O3
        buy A1 M1 yes 1                                 -> filled 1 order O5
        buy A1 M1 yes 1                                 -> filled 1 order O6 forgets O2
        # The name of an order that was forgotten is free.
        place A1 M1 yes buy limit 10 0.3 name=b         -> pending O7 forgets O5
        place A1 M1 yes buy limit 10 0.3 name=a         -> replay of O1
        cancel A1 O2                                    -> ORDER_NOT_FOUND
        cancel-all A1                                   -> ended O1 USER ended O4 USER ended O7 USER
        cancel-all A1                                   -> already
        show A1 M1 yes                                  -> has reserved 0 open
        # A surplus shrinks by two with each order.
        buy A1 M1 yes 1                                 -> filled 1 order O8 forgets O6 O1
        buy A1 M1 yes 1                                 -> filled 1 order O9 forgets O4 O7
        ",
    );
}

#[test]
fn some_orders_are_cancelled_by_market_or_token() {
    check(
        "
        balance 100
        market M1 Yes No
        market M2 Yes No
        book M1 yes asks 0.6x10
        book M2 yes asks 0.6x10
        open A1                                         -> opened A1
        open A2                                         -> opened A2
        place A1 M1 yes buy limit 5 0.3                 -> pending O1
        place A1 M1 no buy limit 5 0.3                  -> pending O2
        place A1 M2 yes buy limit 5 0.3                 -> pending O3
        place A2 M1 yes buy limit 5 0.3                 -> pending O4
        cancel-all A1 token=M1-No                       -> ended O2 USER
        cancel-all A1 market=M1 token=M2-Yes            -> already
        cancel-all A1 market=M1                         -> ended O1 USER
        cancel-all A1 market=M9                         -> already
        cancel-all A1 after=O3                          -> already
        place A1 M2 yes buy limit 5 0.3                 -> pending O5
        cancel-all A1 market=M2 after=O3                -> ended O5 USER
        cancel-all A9                                   -> ACCOUNT_NOT_FOUND
        cancel-all A1                                   -> ended O3 USER
        show A2 M1 yes                                  -> has reserved 1.5 open O4:5
        ",
    );
}

/// An order may open its account, introduce its market, and rest, all in one record.
#[test]
fn a_first_order_may_rest() {
    check(
        "
        balance 100
        market M1 Yes No
        place token:A1 M1 yes buy limit 10 0.5 name=a   -> pending O1 awaits YES opens A1
        place token:A1 M1 yes buy limit 10 0.5 name=a   -> replay of O1
        restart
        cancel A1 O1                                    -> ended O1 USER
        show A1 M1 yes                                  -> has cash 100 reserved 0 available 100
        ",
    );
}
