//! The hot operations: those that bots repeat, and that connections answer in the lane.

/// Prefixes of the request lines of hot operations. These operations never answer with a stream.
const HOT: [&[u8]; 8] = [
    b"POST /trade ",
    b"POST /v1/orders",
    b"DELETE /v1/orders/",
    b"GET /v1/orders",
    b"GET /v1/account/",
    b"GET /v1/book",
    b"GET /v1/markets/",
    b"POST /v1/cancel-",
];

/// Whether these bytes begin with a request for a hot operation.
pub fn is_hot(bytes: &[u8]) -> bool {
    HOT.iter().any(|line| bytes.starts_with(line))
}

/// Prefixes of the request lines of the venue's operations that bots repeat. None is also a prefix
/// of the line of a stream.
const CLOB_HOT: [&[u8]; 18] = [
    b"POST /order",
    b"DELETE /order",
    b"GET /data/",
    b"GET /balance-allowance",
    b"GET /book?",
    b"GET /fee-rate",
    b"GET /last-trade",
    b"GET /midpoint?",
    b"GET /neg-risk?",
    b"GET /price?",
    b"GET /spread?",
    b"GET /tick-size",
    b"GET /time ",
    b"POST /books ",
    b"POST /last-trades-prices ",
    b"POST /midpoints ",
    b"POST /prices ",
    b"POST /spreads ",
];

/// Whether these bytes begin with a request for a hot operation, on a server with the venue's
/// interface.
pub fn is_hot_with_clob(bytes: &[u8]) -> bool {
    is_hot(bytes) || CLOB_HOT.iter().any(|line| bytes.starts_with(line))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http::operation::{Operation, Run};
    use crate::http::operations::OPERATIONS;
    use crate::http::operations::clob::CLOB;

    #[test]
    fn hot_operations_answer_in_one_piece_and_each_line_has_one() {
        let mut is_used = [false; HOT.len()];
        for operation in &OPERATIONS {
            let line = format!("{operation:?} ").replace(['{', '}'], "x");
            let Some(row) = HOT.iter().position(|hot| line.as_bytes().starts_with(hot)) else {
                // What the lane leaves to hyper may be a stream or a socket.
                continue;
            };
            is_used[row] = true;
            assert!(matches!(operation.run, Run::Trade | Run::Now(_) | Run::Later(_)), "{line}");
            assert!(!line.contains("/export/") && !line.contains("/stream"), "{line}");
        }
        assert_eq!(is_used, [true; HOT.len()]);
    }

    #[test]
    fn hot_lines_of_the_venues_interface_have_operations_of_it_alone() {
        let lines = |table: &[Operation]| -> Vec<_> {
            let ends = ["?", " "].into_iter();
            let of = |end| move |operation: &Operation| format!("{operation:?}{end}");
            ends.flat_map(|end| table.iter().map(of(end)).collect::<Vec<_>>()).collect()
        };
        for hot in CLOB_HOT {
            let is_line = |line: &String| line.as_bytes().starts_with(hot);
            assert!(lines(&CLOB).iter().any(is_line), "{}", hot.escape_ascii());
            assert!(!lines(&OPERATIONS).iter().any(is_line), "{}", hot.escape_ascii());
        }
    }
}
