//! Comments on orders.

use crate::engine::comment::Comment;
use crate::http::json::write::{JsonObject, write_list};

/// One comment: the answer to writing it.
pub fn write_comment(out: &mut Vec<u8>, comment: &Comment) {
    let mut row = JsonObject::new(out);
    row.integer("id", comment.id.get());
    row.integer("order_id", comment.order.get());
    row.integer("account_id", comment.author.get());
    row.text("content", &comment.content);
    row.time("created_at", comment.at);
    row.end();
}

/// The comments of an order, oldest first as they come.
pub fn write_comments(out: &mut Vec<u8>, comments: &[Comment]) {
    write_list(out, comments, write_comment);
}

#[cfg(test)]
mod tests {
    use super::super::fixture::written;
    use super::*;
    use crate::ids::{AccountId, CommentId, OrderId, Timestamp};

    #[test]
    fn a_comment_is_shown_with_its_author() {
        let comment = Comment {
            id: CommentId::from_raw(65).unwrap(),
            order: OrderId::from_raw(129).unwrap(),
            author: AccountId::from_raw(200).unwrap(),
            content: "line\n\"two\"".into(),
            at: Timestamp::from_seconds(1_700_000_000),
        };
        let row = concat!(
            r#"{"id":65,"order_id":129,"account_id":200,"content":"line\n\"two\"","#,
            r#""created_at":"2023-11-14T22:13:20Z"}"#
        );
        assert_eq!(written(|out| write_comment(out, &comment)), row);
        let two = [comment.clone(), comment];
        assert_eq!(written(|out| write_comments(out, &two)), format!("[{row},{row}]"));
        assert_eq!(written(|out| write_comments(out, &[])), "[]");
    }
}
