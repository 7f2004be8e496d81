//! Comments on orders.

use std::fmt::Write as _;

use crate::script::check;

const ONE_ORDER: &str = "
    market M1 Yes No
    book M1 yes bids 0.4x100 asks 0.5x100
    open A1                 -> opened A1
    open A2                 -> opened A2
    buy A1 M1 yes 1         -> filled order O1
";

#[test]
fn any_account_comments_and_only_the_author_deletes() {
    check(&format!(
        "{ONE_ORDER}
        comment A2 O1 good price    -> commented C1
        comment A1 O1 thank you     -> commented C2
        comment A1 O2 too early     -> ORDER_NOT_FOUND
        delete A1 C1                -> COMMENT_NOT_OWN
        delete A2 C1                -> deleted C1
        delete A2 C1                -> COMMENT_NOT_FOUND
        delete A1 C1                -> COMMENT_NOT_FOUND
        delete A1 C7                -> COMMENT_NOT_FOUND
        # The number of a deleted comment is not used again.
        comment A2 O1 once more     -> commented C3
        "
    ));
}

#[test]
fn an_order_has_at_most_a_thousand_comments() {
    let mut script = ONE_ORDER.to_owned();
    for author in 3..=51 {
        writeln!(script, "open A{author} -> opened A{author}").unwrap();
    }
    for count in 1..=1000_u32 {
        let author = count.div_ceil(20);
        writeln!(script, "comment A{author} O1 number {count} -> commented C{count}").unwrap();
    }
    script += "
        comment A1 O1 too much      -> COMMENT_LIMIT_EXCEEDED
        comment A51 O1 too much     -> COMMENT_LIMIT_EXCEEDED
        # The limit is per order, and deleting a comment makes room.
        buy A1 M1 yes 1             -> filled order O2
        comment A1 O2 first         -> commented C1001
        delete A25 C500             -> deleted C500
        comment A51 O1 last         -> commented C1002
        comment A51 O1 too much     -> COMMENT_LIMIT_EXCEEDED
    ";
    check(&script);
}

/// The limit also applies to the owner of the order.
#[test]
fn an_author_has_at_most_twenty_comments_on_an_order() {
    let mut script = ONE_ORDER.to_owned();
    for count in 1..=20 {
        let (first, second) = (2 * count - 1, 2 * count);
        writeln!(script, "comment A1 O1 number {count} -> commented C{first}").unwrap();
        writeln!(script, "comment A2 O1 number {count} -> commented C{second}").unwrap();
    }
    script += "
        comment A1 O1 too much      -> AUTHOR_LIMIT_EXCEEDED
        comment A2 O1 too much      -> AUTHOR_LIMIT_EXCEEDED
        # The limit is per order, and deleting makes room for that author only.
        buy A1 M1 yes 1             -> filled order O2
        comment A2 O2 first         -> commented C41
        delete A2 C2                -> deleted C2
        comment A1 O1 too much      -> AUTHOR_LIMIT_EXCEEDED
        comment A2 O1 last          -> commented C42
        comment A2 O1 too much      -> AUTHOR_LIMIT_EXCEEDED
    ";
    check(&script);
}
