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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http::operation::Run;
    use crate::http::operations::OPERATIONS;

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
}
