//! Keys: bootstrap, the cap, renaming, rotation and revocation.

use paperbourse::engine::key::OVERLAPPING_KEYS_PER_ACCOUNT_MAX;

use crate::script::check;

#[test]
fn an_account_is_bootstrapped_once_while_it_has_an_active_key() {
    check(
        "
        key A1 K1 bootstrap             -> ACCOUNT_NOT_FOUND
        key token:A1 K1 bootstrap       -> created K1 opens A1
        key token:A1 K2 bootstrap       -> BOOTSTRAP_NOT_ALLOWED
        # The owner of a token may replace a lost key.
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
        key A1 K5 by=K1                 -> created K5
        key A1 K6 by=K1                 -> TIER_KEY_LIMIT_EXCEEDED
        key token:A1 K6                 -> TIER_KEY_LIMIT_EXCEEDED
        # Both rules are broken; the first is reported.
        key token:A1 K6 bootstrap       -> BOOTSTRAP_NOT_ALLOWED
        revoke A1 K2                    -> revoked K2
        key A1 K6 by=K1                 -> created K6
        key A1 K7 by=K1                 -> TIER_KEY_LIMIT_EXCEEDED
        # The operator sets the limit.
        rules keys 6
        key A1 K7 by=K1                 -> created K7
        rules keys 1
        key A1 K8 by=K1                 -> TIER_KEY_LIMIT_EXCEEDED
        key token:A2 K8 bootstrap       -> created K8
        key token:A2 K9                 -> TIER_KEY_LIMIT_EXCEEDED
        ",
    );
}

#[test]
fn an_expired_key_does_not_prevent_a_bootstrap() {
    check(
        "
        key token:A1 K1 bootstrap       -> created K1
        rotate A1 K1 K2 overlap=10      -> created K2 ends K1
        revoke A1 K2                    -> revoked K2
        after 9
        key token:A1 K3 bootstrap       -> BOOTSTRAP_NOT_ALLOWED
        after 1
        key token:A1 K3 bootstrap       -> created K3
        ",
    );
}

#[test]
fn a_key_is_revoked_alone_or_with_its_descendants() {
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
        # The chain continues through a revoked key.
        revoke A1 K1 descendants        -> revoked K1 K4 K6
        revoke A1 K1 descendants        -> already
        revoke A1 K5 descendants        -> revoked K5
        revoke A1 K2                    -> revoked K2
        ",
    );
}

/// The clock that ended the overlap may have been ahead and be corrected later.
#[test]
fn a_key_whose_overlap_is_over_can_still_be_revoked() {
    check(
        "
        key token:A1 K1 bootstrap       -> created K1
        key A1 K2 by=K1                 -> created K2
        key A1 K3 by=K2                 -> created K3
        rotate A1 K2 K4 overlap=10      -> created K4 ends K2
        after 10
        revoke A1 K2                    -> revoked K2
        revoke A1 K2                    -> already
        rotate A1 K4 K5 overlap=10      -> created K5 ends K4
        after 10
        revoke A1 K1 descendants        -> revoked K1 K3 K4 K5
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
fn an_inactive_key_makes_no_other_key() {
    check(
        "
        key token:A1 K1 bootstrap       -> created K1
        key A1 K2 by=K1                 -> created K2
        revoke A1 K1 descendants        -> revoked K1 K2
        key A1 K3 by=K1                 -> KEY_DEACTIVATED
        rename A1 K2 Desk by=K2         -> KEY_DEACTIVATED
        rotate A1 K2 K3 by=K2           -> KEY_DEACTIVATED
        key token:A1 K3                 -> created K3
        rotate A1 K3 K4 by=K3 overlap=10    -> created K4 ends K3
        after 10
        key A1 K5 by=K3                 -> KEY_DEACTIVATED
        key A1 K5 by=K4                 -> created K5
        ",
    );
}

#[test]
fn a_key_is_renamed() {
    check(
        "
        key token:A1 K1 bootstrap       -> created K1
        key A1 K2 by=K1                 -> created K2
        rename A1 K2 NOTHING by=K2      -> already
        rename A1 K2 Desk by=K2         -> named K2 Desk
        rename A1 K2 Desk by=K1         -> already
        rename A1 K2 Lap                -> named K2 Lap
        rename A1 K2 NOTHING by=K1      -> named K2 NOTHING
        rename A1 K7 Desk               -> KEY_NOT_FOUND
        rename A2 K1 Desk               -> ACCOUNT_NOT_FOUND
        open A2                         -> opened A2
        rename A2 K1 Desk               -> KEY_NOT_FOUND
        # A revoked key can still be renamed.
        revoke A1 K2                    -> revoked K2
        rename A1 K2 Old by=K1          -> named K2 Old
        ",
    );
}

#[test]
fn a_rotated_key_keeps_working_but_manages_nothing() {
    check(
        "
        key token:A1 K1 bootstrap               -> created K1
        rotate A1 K1 K2 by=K1 overlap=60        -> created K2 ends K1
        key A1 K3 by=K1                         -> MAKER_ROTATED
        rename A1 K1 Desk by=K1                 -> MAKER_ROTATED
        rename A1 K2 Desk by=K1                 -> MAKER_ROTATED
        rotate A1 K2 K3 by=K1                   -> MAKER_ROTATED
        rotate A1 K1 K3 by=K1                   -> MAKER_ROTATED
        rotate A1 K1 K3 by=K2                   -> KEY_ROTATED
        rotate A1 K1 K3                         -> KEY_ROTATED
        rename A1 K1 Old by=K2                  -> named K1 Old
        after 59
        rotate A1 K1 K3 by=K2                   -> KEY_ROTATED
        after 1
        rotate A1 K1 K3 by=K2                   -> KEY_ENDED
        revoke A1 K1                            -> revoked K1
        key A1 K3 by=K2                         -> created K3
        revoke A1 K3                            -> revoked K3
        rotate A1 K3 K4                         -> KEY_ENDED
        # Without an overlap it ends at once, whatever the clock does.
        rotate A1 K2 K4 by=K2                   -> revoked K2 created K4
        rotate A1 K9 K5                         -> KEY_NOT_FOUND
        rotate A2 K4 K5                         -> ACCOUNT_NOT_FOUND
        open A2                                 -> opened A2
        rotate A2 K4 K5                         -> KEY_NOT_FOUND
        ",
    );
}

#[test]
fn a_rotated_key_does_not_count_and_its_successor_takes_its_place() {
    check(
        "
        rules keys 2
        key token:A1 K1 bootstrap           -> created K1
        key A1 K2 by=K1                     -> created K2
        rotate A1 K1 K3 overlap=60          -> created K3 ends K1
        rotate A1 K2 K4 overlap=60          -> created K4 ends K2
        rotate A1 K4 K5                     -> revoked K4 created K5
        key token:A1 K6                     -> TIER_KEY_LIMIT_EXCEEDED
        # A rotated key that is revoked makes no room, since it took none.
        revoke A1 K1                        -> revoked K1
        key token:A1 K6                     -> TIER_KEY_LIMIT_EXCEEDED
        revoke A1 K3                        -> revoked K3
        key token:A1 K6                     -> created K6
        ",
    );
}

#[test]
fn ending_a_key_with_its_descendants_ends_its_successors() {
    let family = "
        rules keys 9
        key token:A1 K1 bootstrap           -> created K1
        key A1 K2 by=K1                     -> created K2
        key A1 K3 by=K2                     -> created K3
        rotate A1 K2 K4 overlap=60          -> created K4 ends K2
        key A1 K5 by=K4                     -> created K5
        rotate A1 K4 K6                     -> revoked K4 created K6
        rotate A1 K1 K7 overlap=60          -> created K7 ends K1
        key A1 K8 by=K7                     -> created K8
    ";
    for revocation in [
        "revoke A1 K1 descendants           -> revoked K1 K2 K3 K5 K6 K7 K8",
        "revoke A1 K2 descendants           -> revoked K2 K3 K5 K6",
        // Keys made by the old key do not descend from the new one.
        "revoke A1 K4 descendants           -> revoked K5 K6",
        "revoke A1 K7 descendants           -> revoked K7 K8",
        "revoke A1 K1                       -> revoked K1",
        // The same after its overlap.
        "after 60
        revoke A1 K2 descendants            -> revoked K2 K3 K5 K6",
    ] {
        check(&format!("{family}\n        {revocation}"));
    }
}

/// Repeated rotation cannot create unlimited active keys.
#[test]
fn the_number_of_overlapping_keys_is_limited() {
    use std::fmt::Write as _;
    let mut script = "key token:A1 K1 bootstrap -> created K1\n".to_owned();
    for number in 1..=OVERLAPPING_KEYS_PER_ACCOUNT_MAX {
        let next = number + 1;
        writeln!(
            script,
            "rotate A1 K{number} K{next} overlap=60 -> created K{next} ends K{number}"
        )
        .expect("a string grows");
    }
    check(
        &(script
            + "
            rotate A1 K21 K22 overlap=1     -> OVERLAP_LIMIT_EXCEEDED
            rotate A1 K21 K22               -> revoked K21 created K22
            rotate A1 K22 K23 overlap=1     -> OVERLAP_LIMIT_EXCEEDED
            revoke A1 K7                    -> revoked K7
            rotate A1 K22 K23 overlap=1     -> created K23 ends K22
            rotate A1 K23 K24 overlap=1     -> OVERLAP_LIMIT_EXCEEDED
            after 60
            rotate A1 K23 K24 overlap=1     -> created K24 ends K23
            "),
    );
}
