//! What an account's resting orders have used of the sizes that a book displays.

use crate::script::check;

#[test]
fn a_displayed_size_is_used_once_per_account() {
    check(
        "
        balance 100
        market M1 Yes No
        book M1 yes asks 0.6x1
        open A1                                     -> opened A1
        open A2                                     -> opened A2
        place A1 M1 yes buy limit 10 0.5            -> pending O1
        place A1 M1 yes buy limit 10 0.55           -> pending O2
        place A1 M1 yes buy limit 10 0.5            -> pending O3
        place A2 M1 yes buy limit 10 0.5            -> pending O4
        # One account's orders share it, better prices first and then older ones; another account
        # has it, too.
        book M1 yes asks 0.5x15
        match M1        -> fill O2:10:5.5:0 fill O1:5:2.5:0 fill O4:10:5:0
        match M1                                    -> already
        # What goes does not count as used; only what is added fills.
        book M1 yes asks 0.5x7
        match M1                                    -> already
        book M1 yes asks 0.5x8
        match M1                                    -> fill O1:1:0.5:0
        # A level that flickers is the same level.
        book M1 yes asks 0.6x1
        book M1 yes asks 0.5x8
        match M1                                    -> already
        book M1 yes asks 0.6x1
        after 1
        book M1 yes asks 0.5x8
        match M1                                    -> fill O1:4:2:0 fill O3:4:2:0
        # A restart does not make it new; what exceeds its size then is.
        restart
        match M1                                    -> already
        book M1 yes asks 0.5x7
        match M1                                    -> already
        restart
        book M1 yes asks 0.5x10
        match M1                                    -> fill O3:3:1.5:0
        match M1                                    -> already
        restart
        # Gone when the books come back, so it is new.
        book M1 yes asks 0.6x1
        restart
        book M1 yes asks 0.5x2
        match M1                                    -> fill O3:2:1:0
        match M1                                    -> already
        ",
    );
}

/// A new order takes like a stranger, but does not give back what others of its account have used.
#[test]
fn a_new_order_does_not_forget_what_the_account_has_used() {
    check(
        "
        balance 100
        market M1 Yes No
        book M1 yes asks 0.6x1
        open A1                                     -> opened A1
        place A1 M1 yes buy limit 100 0.5           -> pending O1
        book M1 yes asks 0.49x10
        match M1                                    -> fill O1:10:5:0
        book M1 yes asks 0.48x5 0.49x10
        place A1 M1 yes buy limit 20 0.48           -> pending O2 taken 5 remaining 15
        match M1                                    -> already
        book M1 yes asks 0.48x6 0.49x11
        match M1                                    -> fill O1:2:1:0
        ",
    );
}
