//! The cost of a fill, and the position and balance after it.

use crate::script::check;

#[test]
fn an_order_walks_the_book() {
    check(
        "
        balance 1000
        market M1 Yes No
        book M1 yes bids 0.57x100 asks 0.58x5 0.6x100
        open A1             -> opened A1
        buy A1 M1 yes 5     -> filled 5 @0.58 notional 2.9 fee 0 cash 997.1 position 5 @0.58
        # Market orders do not deplete the displayed book.
        buy A1 M1 yes 10 \
            -> filled 10 @0.59 notional 5.9 cash 991.2 levels 0.58x5 0.6x5 slippage 173
        buy A1 M1 yes 105   -> filled 105 levels 0.58x5 0.6x100 cash 928.3
        buy A1 M1 yes 105.000001 -> INSUFFICIENT_LIQUIDITY available 105 asked 105.000001
        book M1 yes bids 0.55x1 0.56x2 0.57x3 0.54x100
        sell A1 M1 yes 7    -> filled 7 @0.56 notional 3.92 levels 0.57x3 0.56x2 0.55x1 0.54x1
        ",
    );
}

#[test]
fn an_outcome_without_a_book_trades_on_the_mirror_of_the_other() {
    check(
        "
        market M1 Yes No
        book M1 no bids 0.4x10 0.3x10 asks 0.45x5 0.5x5
        open A1             -> opened A1
        buy A1 M1 yes 15    -> filled 15 @0.633333 notional 9.5 levels 0.6x10 0.7x5 of Yes
        sell A1 M1 yes 10   -> filled 10 @0.525 levels 0.55x5 0.5x5
        buy A1 M1 no 10     -> filled 10 @0.475 levels 0.45x5 0.5x5 of No
        # An outcome's own book takes precedence, even if the other one is deeper.
        book M1 yes bids 0.5x1 asks 0.61x1
        buy A1 M1 yes 1     -> filled 1 @0.61
        buy A1 M1 yes 2     -> INSUFFICIENT_LIQUIDITY available 1 asked 2
        ",
    );
}

#[test]
fn outcomes_go_by_their_labels_and_by_yes_and_no() {
    check(
        "
        market M1 Up Down
        book M1 up bids 0.3x100 asks 0.4x100
        book M1 down bids 0.6x100 asks 0.7x100
        market M2 No Yes
        book M2 no bids 0.1x100 asks 0.2x100
        book M2 yes bids 0.8x100 asks 0.9x100
        market M3 Ann Bob Cid
        book M3 cid bids 0.3x100 asks 0.4x100
        open A1             -> opened A1
        buy A1 M1 UP 1      -> filled @0.4 of Up position 1 @0.4
        buy A1 M1 yes 1     -> filled @0.4 of Up position 2 @0.4
        buy A1 M1 NO 1      -> filled @0.7 of Down position 1 @0.7
        buy A1 M1 left 1    -> OUTCOME_NOT_FOUND of Up Down
        # Labels come first: here yes is the second outcome.
        buy A1 M2 yes 1     -> filled @0.9 of Yes
        buy A1 M2 no 1      -> filled @0.2 of No
        buy A1 M3 yes 1     -> OUTCOME_NOT_FOUND of Ann Bob Cid
        buy A1 M3 CID 1     -> filled @0.4 of Cid
        ",
    );
}

#[test]
fn fees_follow_the_current_schedule() {
    check(
        "
        balance 1000
        market M1 Yes No
        book M1 yes bids 0.64x100 asks 0.65x100
        open A1             -> opened A1
        buy A1 M1 yes 10    -> filled notional 6.5 fee 0 rate 0 cash 993.5
        fees M1 0.07 ^1
        buy A1 M1 yes 10    -> filled notional 6.5 fee 0.15925 rate 0.07 cash 986.84075
        sell A1 M1 yes 10   -> filled notional 6.4 fee 0.16128 cash 993.07947
        fees M1 0.25 ^2
        # 10 × 0.25 × 0.2275² = 0.129390625
        buy A1 M1 yes 10    -> filled notional 6.5 fee 0.12939 rate 0.25 cash 986.45008
        fees M1 free
        sell A1 M1 yes 10   -> filled notional 6.4 fee 0 rate 0 cash 992.85008
        fees M1 0.07 ^3
        buy A1 M1 yes 10    -> FEES_UNSUPPORTED
        fees M1 1.000001 ^1
        buy A1 M1 yes 10    -> FEES_UNSUPPORTED
        fees M1 1 ^1
        buy A1 M1 yes 10    -> filled fee 2.275 rate 1
        ",
    );
}

#[test]
fn a_fee_is_rounded_half_to_even_at_each_level() {
    check(
        "
        market M1 Yes No
        fees M1 0.5 ^1
        open A1                 -> opened A1
        book M1 yes asks 0.5x1
        # Half a step of 0.00001, one and a half, two and a half.
        buy A1 M1 yes 0.00004   -> filled notional 0.00002 fee 0
        buy A1 M1 yes 0.00012   -> filled notional 0.00006 fee 0.00002
        buy A1 M1 yes 0.0002    -> filled notional 0.0001 fee 0.00002
        # Just more than half.
        buy A1 M1 yes 0.000041  -> filled fee 0.00001
        # Two levels of 0.000005 and 0.0000048: 0.00001 if they were added first.
        book M1 yes asks 0.5x0.00004 0.6x1
        buy A1 M1 yes 0.00008   -> filled notional 0.000044 fee 0 levels 0.5x0.00004 0.6x0.00004
        ",
    );
}

#[test]
fn the_notional_is_rounded_once_against_the_trader() {
    check(
        "
        balance 1
        market M1 Yes No
        open A1                     -> opened A1
        # 0.1 + 0.2 + 0.3 micro-dollars: one, not three.
        book M1 yes asks 0.1x0.000001 0.2x0.000001 0.3x1
        buy A1 M1 yes 0.000003      -> filled @0.333333 notional 0.000001 cash 0.999999
        book M1 yes bids 0.3333x1
        sell A1 M1 yes 0.000002     -> filled @0 notional 0 cash 0.999999
        sell A1 M1 yes 0.000001     -> filled @0 notional 0 position 0 @0 closed realised -0.000001
        # Exact results are not rounded.
        book M1 yes bids 0.4x1 asks 0.5x1
        buy A1 M1 yes 0.000002      -> filled @0.5 notional 0.000001 cash 0.999998
        # A millionth of the price: half to even, 0.5000005 and 0.5000015.
        balance 1000
        open A2                     -> opened A2
        book M1 yes asks 0.5x1.999999 0.51x1
        buy A2 M1 yes 2             -> filled @0.5 notional 1.000001
        book M1 yes asks 0.5x1.9997 0.51x1
        buy A2 M1 yes 2             -> filled @0.500002 notional 1.000003
        ",
    );
}

#[test]
fn a_position_keeps_its_cost_and_realised_profit() {
    check(
        "
        market M1 Yes No
        open A1             -> opened A1
        open A2             -> opened A2
        book M1 yes asks 0.5x3 0.7x1
        buy A1 M1 yes 3     -> filled position 3 @0.5
        buy A1 M1 yes 4     -> filled notional 2.2 position 7 @0.528571
        book M1 yes bids 0.6x100 asks 0.7x100
        sell A1 M1 yes 7    -> filled position 0 @0 closed realised 0.5
        # It reopens at zero cost and keeps the realised profit.
        buy A1 M1 yes 10    -> filled position 10 @0.7 open realised 0.5
        sell A1 M1 yes 4    -> filled position 6 @0.7 realised 0.1
        sell A1 M1 yes 6.000001 -> INSUFFICIENT_POSITION held 6 asked 6.000001
        # Shares of another outcome or account cannot be sold.
        sell A1 M1 no 1     -> INSUFFICIENT_POSITION held 0 asked 1
        sell A2 M1 yes 1    -> INSUFFICIENT_POSITION held 0 asked 1
        sell A1 M1 yes 6    -> filled position 0 @0 closed realised -0.5
        sell A1 M1 yes 0.000001 -> INSUFFICIENT_POSITION held 0 asked 0.000001
        ",
    );
}

#[test]
fn a_sale_reduces_cost_in_proportion_to_the_last_micro() {
    check(
        "
        market M1 Yes No
        open A1             -> opened A1
        book M1 yes bids 0.5x100 asks 0.3333x2 0.3334x1
        buy A1 M1 yes 3     -> filled notional 1 position 3 @0.333333
        sell A1 M1 yes 1    -> filled position 2 @0.333334 realised 0.166667
        sell A1 M1 yes 1    -> filled position 1 @0.333334 realised 0.333334
        sell A1 M1 yes 1    -> filled position 0 @0 closed realised 0.5
        ",
    );
}

#[test]
fn a_balance_can_be_spent_to_the_last_micro() {
    check(
        "
        market M1 Yes No
        fees M1 0.07 ^1
        book M1 yes bids 0.64x100 asks 0.65x100
        balance 6.659249
        open A1             -> opened A1
        buy A1 M1 yes 10    -> INSUFFICIENT_BALANCE needed 6.65925 available 6.659249
        balance 6.65925
        open A2             -> opened A2
        buy A2 M1 yes 10    -> filled cash 0
        buy A2 M1 yes 0.000001  -> INSUFFICIENT_BALANCE needed 0.000001 available 0
        sell A2 M1 yes 10   -> filled notional 6.4 fee 0.16128 cash 6.23872
        ",
    );
}

/// The fee of a few micro-shares is rounded up to more than they bring.
#[test]
fn a_sale_does_not_end_in_debt() {
    check(
        "
        market M1 Yes No
        fees M1 1 ^1
        book M1 yes bids 0.1x1 asks 0.2x1
        balance 0.000022
        open A1                 -> opened A1
        buy A1 M1 yes 0.000056  -> filled notional 0.000012 fee 0.00001 cash 0
        sell A1 M1 yes 0.000056 -> INSUFFICIENT_BALANCE needed 0.000005 available 0
        ",
    );
}

/// Play money has no limit, but an `i64` has: an order that would exceed it is refused, and the
/// account stays usable.
#[test]
fn sums_out_of_range_are_refused() {
    check(
        "
        market M1 Yes No
        book M1 yes bids 0.99x2000000 asks 0.9x2000000
        balance 9223372036854
        open A1                     -> opened A1
        buy A1 M1 yes 1000000       -> filled cash 9223371136854
        # Granted plus sales would be out of range here; cash would not.
        sell A1 M1 yes 900000       -> filled cash 9223372027854
        sell A1 M1 yes 100000       -> BROKEN
        sell A1 M1 yes 1            -> filled cash 9223372027854.99
        ",
    );
}
