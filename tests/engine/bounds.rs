//! How many orders and keys an account keeps, and which it forgets.

use std::fmt::Write as _;

use crate::script::check;

const MARKET: &str = "
    market M1 Yes No
    book M1 yes bids 0.4x100 asks 0.5x100
    open A1                         -> opened A1
    open A2                         -> opened A2
";

#[test]
fn an_account_keeps_its_newest_orders() {
    check(&format!(
        "{MARKET}
        rules orders 2
        buy A1 M1 yes 1 name=a,b        -> filled order O1
        buy A2 M1 yes 1 name=a          -> filled order O2
        comment A2 O1 words             -> commented C1
        comment A1 O1 more words        -> commented C2
        buy A1 M1 yes 1 name=c          -> filled order O3
        buy A1 M1 yes 1 name=a,b        -> replay of O1
        # Orders of other accounts make it forget nothing.
        buy A2 M1 yes 1                 -> filled order O4
        buy A1 M1 yes 1 name=d          -> filled order O5 forgets O1
        # The names are free again, and the comments are gone.
        comment A2 O1 words             -> ORDER_NOT_FOUND
        delete A2 C1                    -> COMMENT_NOT_FOUND
        delete A2 C2                    -> COMMENT_NOT_FOUND
        buy A1 M1 yes 1 name=c          -> replay of O3
        buy A1 M1 yes 2 name=b          -> filled order O6 forgets O3
        buy A1 M1 yes 1 name=a,c        -> filled order O7 forgets O5
        # Shares from forgotten orders are still held.
        sell A1 M1 yes 6                -> filled cash 999.4 position 0 forgets O6
        buy A2 M1 yes 1 name=a          -> replay of O2
        comment A2 O2 words             -> commented C3
        "
    ));
}

/// When an operator lowers the limit, the account keeps trading while it forgets old orders.
#[test]
fn an_account_above_the_limit_gradually_keeps_fewer_orders() {
    check(&format!(
        "{MARKET}
        rules orders 9
        buy A1 M1 yes 1                 -> filled order O1
        buy A1 M1 yes 1                 -> filled order O2
        buy A1 M1 yes 1                 -> filled order O3
        buy A1 M1 yes 1                 -> filled order O4
        buy A1 M1 yes 1                 -> filled order O5
        rules orders 2
        # A refused order forgets nothing.
        buy A1 M1 yes 1000              -> INSUFFICIENT_LIQUIDITY
        buy A1 M1 yes 1                 -> filled order O6 forgets O1 O2
        buy A1 M1 yes 1                 -> filled order O7 forgets O3 O4
        buy A1 M1 yes 1                 -> filled order O8 forgets O5 O6
        buy A1 M1 yes 1                 -> filled order O9 forgets O7
        rules orders 1
        buy A1 M1 yes 1                 -> filled order O10 forgets O8 O9
        rules orders 3
        buy A1 M1 yes 1                 -> filled order O11
        buy A1 M1 yes 1                 -> filled order O12
        buy A1 M1 yes 1                 -> filled order O13 forgets O10
        "
    ));
}

/// Creates the keys `first..=last` one by one, and revokes each.
fn ended_keys(script: &mut String, first: u32, last: u32) {
    for key in first..=last {
        writeln!(script, "key A1 K{key} -> created K{key}\nrevoke A1 K{key} -> revoked K{key}")
            .expect("a string grows");
    }
}

#[test]
fn an_account_keeps_its_newest_hundred_ended_keys() {
    let mut script = "
        key token:A1 K1 bootstrap   -> created K1
        rotate A1 K1 K2 overlap=60  -> created K2 ends K1
        revoke A1 K2                -> revoked K2
    "
    .to_owned();
    ended_keys(&mut script, 3, 101);
    script += "
        # One more ended key than are kept; active keys do not count.
        key A1 K102                 -> created K102
        after 60
        key A1 K103                 -> created K103 forgets K1
        revoke A1 K1                -> KEY_NOT_FOUND
        key A1 K104 by=K1           -> KEY_DEACTIVATED
        revoke A1 K2                -> already
        # If several end at once, the next creation forgets as many.
        revoke A1 K102              -> revoked K102
        revoke A1 K103              -> revoked K103
        key A1 K104                 -> created K104 forgets K2 K3
        key A1 K105                 -> created K105
        open A2                     -> opened A2
        key A2 K106                 -> created K106
        revoke A2 K4                -> KEY_NOT_FOUND
        revoke A1 K4                -> already
    ";
    check(&script);
}

/// Each rotation makes a key with the previous one, so a chain of makers grows without limit. Keys
/// in its middle are forgotten, but its active keys still end with its first one.
#[test]
fn a_family_ends_together_even_if_keys_between_were_forgotten() {
    let mut script = "
        key token:A1 K1 bootstrap   -> created K1
        key A1 K2 by=K1             -> created K2
        key A1 K3 by=K2             -> created K3
        key A1 K4 by=K3             -> created K4
        key A1 K5 by=K3             -> created K5
        revoke A1 K2                -> revoked K2
        revoke A1 K3                -> revoked K3
        revoke A1 K5                -> revoked K5
    "
    .to_owned();
    ended_keys(&mut script, 6, 103);
    script += "
        key A1 K104                 -> created K104 forgets K2
        revoke A1 K104              -> revoked K104
        key A1 K105                 -> created K105 forgets K3
        key A1 K106 by=K4           -> created K106
        revoke A1 K3 descendants    -> KEY_NOT_FOUND
        revoke A1 K1 descendants    -> revoked K1 K4 K106
        revoke A1 K105              -> revoked K105
    ";
    check(&script);
}
