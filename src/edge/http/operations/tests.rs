//! What the table says, and that each row is reached.

use std::fmt::Write as _;

use super::*;

#[test]
fn checks_before_the_body_are_pinned() {
    let mut table = String::new();
    for operation in &OPERATIONS {
        let name = format!("{operation:?}");
        let access = format!("{:?}", operation.access);
        let body = operation.body_bytes_max / 1024;
        let makes = match (operation.makes.account, operation.makes.key) {
            (true, true) => " account, key",
            (true, false) => " account",
            (false, true) => " key",
            (false, false) => "",
        };
        writeln!(table, "{name:<36} {access:<23} {body:>3} KiB{makes}").unwrap();
    }
    insta::assert_snapshot!(table);
}

/// A row is useless if an earlier one matches all of its requests.
#[test]
fn every_row_is_reached() {
    for (index, operation) in OPERATIONS.iter().enumerate() {
        let path = operation.path.as_str();
        let first = OPERATIONS.iter().find(|it| it.path.segment(path).is_some());
        assert_eq!(first.map(|it| it.path.as_str()), Some(path));
        assert!(!OPERATIONS[..index].contains(operation), "{operation:?} has two rows");
    }
}
