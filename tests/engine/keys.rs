//! Keys: the first one, the cap, and how they end.

use crate::script::check;

#[test]
fn an_account_is_bootstrapped_once_while_it_has_an_active_key() {
    check(
        "
        key A1 K1 bootstrap             -> ACCOUNT_NOT_FOUND
        key token:A1 K1 bootstrap       -> created K1 opens A1
        key token:A1 K2 bootstrap       -> BOOTSTRAP_NOT_ALLOWED
        # The owner of a token who lost the key makes another one.
        key token:A1 K2                 -> created K2
        revoke A1 K1                    -> revoked K1
        key token:A1 K3 bootstrap       -> BOOTSTRAP_NOT_ALLOWED
        revoke A1 K2                    -> revoked K2
        key token:A1 K3 bootstrap       -> created K3
        # Other accounts do not count.
        key token:A2 K4 bootstrap       -> created K4 opens A2
        ",
    );
}

#[test]
fn an_account_has_at_most_five_active_keys() {
    check(
        "
        key token:A1 K1 bootstrap       -> created K1
        key A1 K2 by=K1                 -> created K2
        key A1 K3 by=K1                 -> created K3
        key A1 K4 by=K1                 -> created K4
        key A1 K5 by=K1 expires=60      -> created K5
        key A1 K6 by=K1                 -> TIER_KEY_LIMIT_EXCEEDED
        key token:A1 K6                 -> TIER_KEY_LIMIT_EXCEEDED
        # Of both reasons the first is told.
        key token:A1 K6 bootstrap       -> BOOTSTRAP_NOT_ALLOWED
        revoke A1 K2                    -> revoked K2
        key A1 K6 by=K1                 -> created K6
        # A key ends at its expiry, to the second.
        after 59
        key A1 K7 by=K1                 -> TIER_KEY_LIMIT_EXCEEDED
        after 1
        key A1 K7 by=K1                 -> created K7
        key A1 K8 by=K1                 -> TIER_KEY_LIMIT_EXCEEDED
        # The number is the operator's.
        rules keys 6
        key A1 K8 by=K1                 -> created K8
        rules keys 1
        key A1 K9 by=K1                 -> TIER_KEY_LIMIT_EXCEEDED
        key token:A2 K9 bootstrap       -> created K9
        key token:A2 K10                -> TIER_KEY_LIMIT_EXCEEDED
        ",
    );
}

#[test]
fn a_key_that_expired_does_not_stand_in_the_way_of_a_bootstrap() {
    check(
        "
        key token:A1 K1 bootstrap expires=10    -> created K1
        after 9
        key token:A1 K2 bootstrap               -> BOOTSTRAP_NOT_ALLOWED
        after 1
        key token:A1 K2 bootstrap               -> created K2
        ",
    );
}

#[test]
fn a_key_ends_alone_or_with_all_that_were_made_with_it() {
    check(
        "
        rules keys 9
        key token:A1 K1 bootstrap       -> created K1
        key token:A1 K2                 -> created K2
        key A1 K3 by=K1                 -> created K3
        key A1 K4 by=K3                 -> created K4
        key A1 K5 by=K2                 -> created K5
        key A1 K6 by=K4                 -> created K6
        revoke A1 K3                    -> revoked K3
        revoke A1 K3                    -> already
        # The chain is followed through a key that ended before.
        revoke A1 K1 descendants        -> revoked K1 K4 K6
        revoke A1 K1 descendants        -> already
        revoke A1 K5 descendants        -> revoked K5
        revoke A1 K2                    -> revoked K2
        ",
    );
}

/// What has expired is not ended again, so that a family of any size ends in one short record.
#[test]
fn a_key_that_expired_has_ended_already() {
    check(
        "
        key token:A1 K1 bootstrap       -> created K1
        key A1 K2 by=K1 expires=10      -> created K2
        key A1 K3 by=K2                 -> created K3
        after 10
        revoke A1 K2                    -> already
        revoke A1 K1 descendants        -> revoked K1 K3
        ",
    );
}

#[test]
fn keys_of_others_are_not_found() {
    check(
        "
        key token:A1 K1 bootstrap       -> created K1
        revoke A2 K1                    -> ACCOUNT_NOT_FOUND
        open A2                         -> opened A2
        revoke A2 K1 descendants        -> KEY_NOT_FOUND
        revoke A1 K7                    -> KEY_NOT_FOUND
        revoke A1 K1                    -> revoked K1
        ",
    );
}

#[test]
fn a_key_that_has_ended_makes_no_other_key() {
    check(
        "
        key token:A1 K1 bootstrap       -> created K1
        key A1 K2 by=K1 expires=10      -> created K2
        revoke A1 K1 descendants        -> revoked K1 K2
        key A1 K3 by=K1                 -> KEY_DEACTIVATED
        key token:A1 K3 expires=10      -> created K3
        after 10
        key A1 K4 by=K3                 -> KEY_DEACTIVATED
        key token:A1 K4                 -> created K4
        ",
    );
}
