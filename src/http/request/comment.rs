//! What a client writes on an order.

use crate::http::fields::Fields;
use crate::http::invalid::{Invalid, Location, unless_invalid};
use crate::http::json::read::Object;

/// A comment has at most this many characters.
pub const COMMENT_CHARACTERS_MAX: usize = 1_000;

/// Reads the body of `POST /trades/{order_id}/comments`: the content, without white space around.
pub fn read_comment(body: &[u8]) -> Result<Box<str>, Invalid> {
    let mut errors = Vec::new();
    let mut fields = Fields::new(Object::of_body(body)?, Location::body(), &mut errors);
    let content = fields.required("content").and_then(|value| {
        let content = fields.text("content", value)?;
        let content = content.trim();
        if content.contains(is_refused) {
            let message = "should have no control characters but newlines and tabs";
            fields.note("content", "string_pattern_mismatch", message);
            return None;
        }
        fields.check_length("content", content, 1, COMMENT_CHARACTERS_MAX).then(|| content.into())
    });
    unless_invalid(errors, content)
}

/// Whether a character could move the cursor or change the colours of whoever reads the comment in
/// a terminal, or end a line of a log.
fn is_refused(character: char) -> bool {
    character.is_control() && !matches!(character, '\n' | '\t')
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http::invalid::tests::told;

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
            assert_eq!(told(&read_comment(body.as_bytes())), [expected], "{body}");
        }
    }
}
