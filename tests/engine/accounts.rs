//! When accounts open, and with which balance.

use crate::script::check;

#[test]
fn an_identity_has_one_account() {
    check(
        "
        open A1         -> opened A1
        open A1         -> already
        open A2         -> opened A2
        ",
    );
}

#[test]
fn the_first_trade_with_a_token_opens_the_account() {
    check(
        "
        balance 100
        market M1 Yes No
        book M1 yes bids 0.4x100 asks 0.5x100
        # A refused trade opens nothing.
        buy token:A1 M1 yes 1000            -> INSUFFICIENT_LIQUIDITY available 100 asked 1000
        sell token:A1 M1 yes 1              -> INSUFFICIENT_POSITION held 0 asked 1
        buy A1 M1 yes 1                     -> ACCOUNT_NOT_FOUND
        buy token:A1 M1 yes 10 name=a       -> filled 10 cash 95 opens A1
        open A1                             -> already
        # A new starting balance only applies to later accounts.
        balance 7
        buy token:A1 M1 yes 10              -> filled 10 cash 90 position 20 @0.5
        buy A1 M1 yes 10                    -> filled 10 cash 85 position 30 @0.5
        buy token:A1 M1 yes 10 name=a       -> replay of O1
        buy token:A2 M1 yes 10 name=a       -> filled 10 cash 2 position 10 @0.5 opens A2
        buy A2 M1 yes 10                    -> INSUFFICIENT_BALANCE needed 5 available 2
        ",
    );
}
