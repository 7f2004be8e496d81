//! Comments on trades: written, listed, deleted.

use paperbourse_test_support::Request;
use serde_json::json;

use super::expect::Outcome::{self, Done, Invalid, Refused};
use super::expect::{Kind, check_error, check_fields, check_invalid};
use super::server::{Account, Server, shared};

/// The most comments of one author on one order.
const COMMENTS_OF_AUTHOR: usize = 20;

fn path(account: &Account<'_>) -> String {
    format!("/trades/{}/comments", account.buy(1)["order_id"])
}

fn contents(rows: &serde_json::Value) -> Vec<&str> {
    rows.as_array().unwrap().iter().map(|row| row["content"].as_str().unwrap()).collect()
}

#[test]
fn content_is_bounded_after_trimming() {
    let account = shared().account();
    let path = path(&account);
    let too_long = Invalid(&["body.content: string_too_long"]);
    let blank = Invalid(&["body.content: string_too_short"]);
    let control = Invalid(&["body.content: string_pattern_mismatch"]);
    for (content, outcome) in [
        (json!("x"), Done),
        (json!("x".repeat(999)), Done),
        (json!("x".repeat(1_000)), Done),
        (json!("é".repeat(1_000)), Done),
        (json!("x".repeat(1_001)), too_long),
        (json!("é".repeat(1_001)), too_long),
        (json!(format!("  {}\n", "x".repeat(1_000))), Done),
        (json!(""), blank),
        (json!(" \t\n\u{2003}"), blank),
        (json!(null), Invalid(&["body.content: missing"])),
        (json!(5), Invalid(&["body.content: string_type"])),
        (json!("two\nlines\tand a tab"), Done),
        (json!("\r\nat the ends\r\n"), Done),
        (json!("a\r\nb"), control),
        (json!("a\u{0}b"), control),
        (json!("a\u{1b}[2Jb"), control),
        (json!("a\u{7f}b"), control),
        (json!("a\u{85}b"), control),
    ] {
        println!("{content}");
        outcome.check(&account.post(&*path, &json!({"content": content})));
    }
    check_invalid(&account.post(&*path, &json!({})), &["body.content: missing"]);
}

#[test]
fn a_comment_is_shown_as_it_was_written() {
    let account = shared().account();
    let path = path(&account);
    let content = "  \"quoted\"\\ <b>bold</b> \t\n 日本 💹 ";
    let comment = account.post(&*path, &json!({"content": content})).ok(200);
    check_fields(
        &comment,
        &[
            ("id", Kind::Integer),
            ("order_id", Kind::Integer),
            ("account_id", Kind::Integer),
            ("content", Kind::Text),
            ("created_at", Kind::Time),
        ],
    );
    assert_eq!(comment["content"], content.trim());
    assert_eq!(path, format!("/trades/{}/comments", comment["order_id"]));
    assert_eq!(shared().get(&*path).ok(200), json!([comment]));
}

#[test]
fn a_list_is_a_page_oldest_first() {
    let account = shared().account();
    let path = path(&account);
    let written: Vec<String> = (0..55).map(|number| format!("number {number}")).collect();
    for some in written.chunks(COMMENTS_OF_AUTHOR) {
        let author = shared().account();
        for content in some {
            author.post(&*path, &json!({"content": content})).ok(200);
        }
    }
    for (query, expected) in [
        ("", &written[..50]),
        ("?limit=1", &written[..1]),
        ("?limit=100", &written[..]),
        ("?limit=2&offset=3", &written[3..5]),
        ("?offset=54", &written[54..]),
        ("?offset=55", &[]),
        ("?offset=1000000", &[]),
    ] {
        let rows = shared().get(format!("{path}{query}")).ok(200);
        assert_eq!(contents(&rows), expected, "{query}");
    }
    for (query, field) in [
        ("?limit=0", "query.limit: greater_than_equal"),
        ("?limit=101", "query.limit: less_than_equal"),
        ("?limit=x", "query.limit: int_parsing"),
        ("?offset=-1", "query.offset: greater_than_equal"),
    ] {
        check_invalid(&shared().get(format!("{path}{query}")), &[field]);
    }
}

#[test]
fn any_account_comments_and_only_the_author_deletes() {
    let (owner, stranger) = (shared().account(), shared().account());
    let path = path(&owner);
    let comment = stranger.post(&*path, &json!({"content": "not mine"})).ok(200);
    let own = owner.post(&*path, &json!({"content": "mine"})).ok(200);
    assert_ne!(comment["account_id"], own["account_id"]);
    let comment_path = format!("/comments/{}", comment["id"]);
    check_error(&owner.delete(&*comment_path), 403, "INSUFFICIENT_PERMISSION");
    assert_eq!(contents(&shared().get(&*path).ok(200)), ["not mine", "mine"]);
    stranger.delete(&*comment_path).ok(200);
    assert_eq!(contents(&shared().get(&*path).ok(200)), ["mine"]);
    check_error(&stranger.delete(&*comment_path), 404, "COMMENT_NOT_FOUND");
}

#[test]
fn one_author_leaves_room_for_others_on_an_order() {
    let (owner, stranger) = (shared().account(), shared().account());
    let (path, other_path) = (path(&owner), path(&owner));
    let body = json!({"content": "again"});
    let mut newest = json!(null);
    for _ in 0..COMMENTS_OF_AUTHOR {
        newest = stranger.post(&*path, &body).ok(200);
    }
    for _ in 0..2 {
        check_error(&stranger.post(&*path, &body), 400, "COMMENT_LIMIT_EXCEEDED");
    }
    owner.post(&*path, &body).ok(200);
    stranger.post(&*other_path, &body).ok(200);
    // Deleting a comment makes room for another.
    stranger.delete(format!("/comments/{}", newest["id"])).ok(200);
    stranger.post(&*path, &body).ok(200);
    check_error(&stranger.post(&*path, &body), 400, "COMMENT_LIMIT_EXCEEDED");
}

#[test]
fn a_token_comments_as_the_account_that_it_opens() {
    let path = path(&shared().account());
    let token = shared().token("comments-with-a-token", None);
    let body = json!({"content": "hello"});
    let comment = shared().send(&Request::post(&*path, &body).bearer(&token)).ok(200);
    let delete = Request::delete(format!("/comments/{}", comment["id"])).bearer(&token);
    shared().send(&delete).ok(200);
}

#[test]
fn missing_orders_and_comments_are_not_found() {
    let account = shared().account();
    let body = json!({"content": "x"});
    let not_found = |code| Refused(404, code);
    let not_an_integer = Invalid(&["path.order_id: int_parsing"]);
    let rows: [(Request, Outcome<'_>); 9] = [
        (Request::post("/trades/9007199254740990/comments", &body), not_found("ORDER_NOT_FOUND")),
        (Request::post("/trades/0/comments", &body), not_found("ORDER_NOT_FOUND")),
        (Request::post("/trades/-1/comments", &body), not_found("ORDER_NOT_FOUND")),
        (Request::get("/trades/9007199254740990/comments"), not_found("ORDER_NOT_FOUND")),
        (Request::get("/trades/abc/comments"), not_an_integer),
        (Request::post("/trades/1.0/comments", &body), not_an_integer),
        (
            Request::post("/trades/abc/comments", &json!({"content": ""})),
            Invalid(&["path.order_id: int_parsing", "body.content: string_too_short"]),
        ),
        (Request::delete("/comments/9007199254740990"), not_found("COMMENT_NOT_FOUND")),
        (Request::delete("/comments/x"), Invalid(&["path.comment_id: int_parsing"])),
    ];
    for (request, outcome) in rows {
        outcome.check(&account.send(request));
    }
}

#[test]
fn an_author_has_so_many_comments_on_all_orders_together() {
    let server = Server::unlimited_with(&["--author-comments", "3"]);
    let (author, other) = (server.account(), server.account());
    // The orders of two accounts, which may be in two shards.
    let paths = [path(&author), path(&other), path(&other)];
    let say = |account: &Account<'_>, path: &str| account.post(path, &json!({"content": "hm"}));
    let ids: Vec<_> =
        paths.iter().map(|path| say(&author, path).ok(200)["id"].to_string()).collect();
    for path in &paths {
        let refused = say(&author, path);
        check_error(&refused, 400, "COMMENT_LIMIT_EXCEEDED");
        let message = refused.json()["message"].as_str().unwrap().to_owned();
        let way_out = format!("DELETE /comments/{} deletes the oldest", ids[0]);
        assert!(message.contains(&way_out), "{message}");
        say(&other, path).ok(200);
    }
    author.delete(format!("/comments/{}", ids[0])).ok(200);
    say(&author, &paths[2]).ok(200);
    check_error(&say(&author, &paths[2]), 400, "COMMENT_LIMIT_EXCEEDED");
}
