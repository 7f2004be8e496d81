//! Comments on orders. Anyone can read them; only the author can delete one.

use schemars::JsonSchema;
use serde::Serialize;

use crate::http::call::{Answer, Call};
use crate::http::error::ApiError;
use crate::http::fields::Fields;
use crate::http::invalid::{Invalid, Location, unless_invalid};
use crate::http::json::read::Object;
use crate::http::parameter::Parameter;
use crate::http::query::Query;
use crate::http::reply::Reply;
use paperbourse_core::engine::comment::Comment;
use paperbourse_core::ids::{CommentId, OrderId};
use paperbourse_core::wire::Time;
use paperbourse_exchange::service::Page;

/// Maximum length of a comment, in characters.
pub(in crate::http) const COMMENT_CHARACTERS_MAX: usize = 1_000;
/// Maximum number of rows in a list.
const ROWS_MAX: usize = 100;

pub(in crate::http) async fn add(call: &Call<'_>) -> Answer {
    let order = call.id(OrderId::from_raw);
    let content = read_comment(&call.take_body());
    // Both are read before either is refused, so that every failing field is reported.
    let (order, content) = ApiError::both(order.map_err(Into::into), content)?;
    let comment = call.service().comment(&call.caller, order, content, call.context).await?;
    call.metrics.comments_added.increment();
    Ok(Reply::ok(&CommentRow::of(&comment)))
}

pub(in crate::http) async fn list(call: &Call<'_>) -> Answer {
    let order = call.id(OrderId::from_raw);
    let (order, page) = ApiError::both(order.map_err(Into::into), read_page(call.query()))?;
    let comments = call.service().comments(order, page, call.context).await?;
    Ok(Reply::ok(&comments.iter().map(CommentRow::of).collect::<Vec<_>>()))
}

pub(in crate::http) async fn delete(call: &Call<'_>) -> Answer {
    let comment = call.id(CommentId::from_raw)?;
    call.service().delete_comment(&call.caller, comment, call.context).await?;
    Ok(Reply::message("The comment is deleted."))
}

/// Reads the content of a comment and trims it.
pub fn read_comment(body: &[u8]) -> Result<Box<str>, Invalid> {
    let mut errors = Vec::new();
    let mut fields = Fields::new(Object::of_body(body)?, Location::body(), &mut errors);
    let content = fields.required("content").and_then(|value| {
        let content = fields.text("content", value)?;
        let content = content.trim();
        let is_good = fields.check_control_characters("content", content, true)
            && fields.check_length("content", content, 1, COMMENT_CHARACTERS_MAX);
        is_good.then(|| content.into())
    });
    unless_invalid(errors, content)
}

pub(in crate::http) const PAGE_QUERY: [Parameter; 2] =
    [Parameter::limit(50, ROWS_MAX), Parameter::OFFSET];

fn read_page(mut query: Query<'_>) -> Result<Page, Invalid> {
    let page = query.page(50, ROWS_MAX);
    query.finish(page)
}

/// A comment, alone or in a list.
#[derive(JsonSchema, Serialize)]
#[schemars(rename = "Comment")]
pub(in crate::http) struct CommentRow<'a> {
    /// The comment's id.
    id: u64,
    /// The order's id.
    order_id: u64,
    /// The author's account.
    account_id: u64,
    content: &'a str,
    created_at: Time,
}

impl<'a> CommentRow<'a> {
    fn of(comment: &'a Comment) -> Self {
        Self {
            id: comment.id.get(),
            order_id: comment.order.get(),
            account_id: comment.author.get(),
            content: &comment.content,
            created_at: Time(comment.at),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http::invalid::tests::errors_of;
    use crate::http::query::tests::query;
    use paperbourse_core::ids::{AccountId, Timestamp};

    #[test]
    fn content_is_trimmed_before_it_is_counted() {
        let longest = "é".repeat(COMMENT_CHARACTERS_MAX);
        for (content, expected) in [
            ("nice", "nice"),
            (" \\u00a0\\u3000nice one\\n", "nice one"),
            (&format!("   {longest}   "), longest.as_str()),
            ("\\u0085\\r\\na\\n\\tb\\r\\n", "a\n\tb"),
        ] {
            let body = format!("{{\"content\":\"{content}\"}}");
            assert_eq!(read_comment(body.as_bytes()).as_deref(), Ok(expected), "{content}");
        }
        let too_long = format!("{{\"content\":\"{longest}x\"}}");
        for (body, expected) in [
            (too_long.as_str(), "body.content: string_too_long"),
            (r#"{"content":""}"#, "body.content: string_too_short"),
            (r#"{"content":" \t\u2003"}"#, "body.content: string_too_short"),
            (r#"{"content":"a\u0000"}"#, "body.content: string_pattern_mismatch"),
            (r#"{"content":"a\r\nb"}"#, "body.content: string_pattern_mismatch"),
            (r#"{"content":"a\u009bb"}"#, "body.content: string_pattern_mismatch"),
            (r#"{"content":null}"#, "body.content: missing"),
            (r#"{"content":["x"]}"#, "body.content: string_type"),
            ("", "body: missing"),
        ] {
            assert_eq!(errors_of(&read_comment(body.as_bytes())), [expected], "{body}");
        }
    }

    #[test]
    fn a_list_has_a_page() {
        let read = |text| read_page(query("GET /trades/64/comments", text));
        for (text, limit, offset) in [
            (None, 50, 0),
            (Some(""), 50, 0),
            (Some("&&x&=1"), 50, 0),
            (Some("limit=7&offset=9"), 7, 9),
            (Some("limit=7&limit=8"), 8, 0),
            (Some("%6cimit=%31&offset=%2B2"), 1, 2),
            (Some("limit=100&offset=1000000000"), 100, 1_000_000_000),
        ] {
            assert_eq!(read(text), Ok(Page { limit, offset }), "{text:?}");
        }
        for (text, expected) in [
            ("limit=0", &["query.limit: greater_than_equal"][..]),
            ("limit=101", &["query.limit: less_than_equal"]),
            ("limit=99999999999999999999", &["query.limit: less_than_equal"]),
            ("limit=-99999999999999999999", &["query.limit: greater_than_equal"]),
            ("limit=", &["query.limit: int_parsing"]),
            ("limit", &["query.limit: int_parsing"]),
            ("limit=1&limit=%", &["query.limit: int_parsing"]),
            ("limit=1.0&offset=x", &["query.limit: int_parsing", "query.offset: int_parsing"]),
            ("offset=-1", &["query.offset: greater_than_equal"]),
        ] {
            assert_eq!(errors_of(&read(Some(text))), expected, "{text}");
        }
    }

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
        assert_eq!(serde_json::to_string(&CommentRow::of(&comment)).unwrap(), row);
    }
}
