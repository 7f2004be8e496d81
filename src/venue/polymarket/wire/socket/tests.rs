use super::*;

/// A summary of a frame.
fn shown(text: &str) -> String {
    let messages = match frame(text) {
        Frame::Pong => return "pong".to_owned(),
        Frame::Empty => return "empty".to_owned(),
        Frame::NoNewAssets => return "no new assets".to_owned(),
        Frame::Other => return "other".to_owned(),
        Frame::Messages(messages) => messages,
    };
    let summaries = messages.iter().map(|message| match message {
        Ok(Message::Book(book)) => format!("book of {}", book.asset_id),
        Ok(Message::BestBidAsk(top)) => {
            let text = |price: Option<Price>| {
                price.map_or_else(|| "-".to_owned(), |price| price.to_string())
            };
            format!("top of {}: {} {}", top.asset_id, text(top.best_bid), text(top.best_ask))
        }
        Ok(Message::MarketResolved(resolved)) => {
            format!("resolved to {}", resolved.winning_asset_id.unwrap_or("nothing"))
        }
        Ok(Message::LastTradePrice(trade)) => {
            let side = trade.side.map_or("unknown", Side::as_str);
            format!("{} at {} by {side}", trade.size, trade.price)
        }
        Ok(message) => format!("{message:?}"),
        Err(error) => error.to_string(),
    });
    summaries.collect::<Vec<_>>().join("; ")
}

#[test]
fn an_unreadable_message_can_have_a_subject() {
    let book = r#"{"event_type":"book","market":"0xa","asset_id":"1","bids":7}"#;
    let read = subject(book);
    assert_eq!(
        (read.event_type, read.market, read.asset_id),
        (Some("book"), Some("0xa"), Some("1"))
    );
    for (frame, index, event_type, market) in [
        (r#"[{"event_type":"a"},{"market":"0xb"}]"#, 1, None, Some("0xb")),
        (r#"[{"event_type":"a"},{"market":"0xb"}]"#, 2, None, None),
        (r#"{"event_type":"new_market","market":7}"#, 0, Some("new_market"), None),
        (r#"{"event_type":"book","market""#, 0, None, None),
        ("[1]", 0, None, None),
    ] {
        let texts = texts(frame);
        let text = texts.get(index).copied().unwrap_or_default();
        let expected = Subject { event_type, market, asset_id: None };
        assert_eq!(subject(text), expected, "{frame}");
    }
}

/// An empty object takes a hundred times as much memory as its text.
#[test]
fn a_frame_of_very_many_messages_is_one_unreadable_message() {
    let frame_of = |count: usize| format!("[{}{{}}]", "{},".repeat(count - 1));
    let count = |text: &str| match frame(text) {
        Frame::Messages(messages) => messages.len(),
        _ => panic!("no messages"),
    };
    let (most, too_many) = (frame_of(MESSAGES_PER_FRAME_MAX), frame_of(MESSAGES_PER_FRAME_MAX + 1));
    assert_eq!((count(&most), count(&too_many)), (MESSAGES_PER_FRAME_MAX, 1));
    assert_eq!(texts(&too_many), [too_many.as_str()]);
}

#[test]
fn every_kind_of_frame_is_recognised() {
    for (text, expected) in [
        ("PONG", "pong"),
        ("", "empty"),
        (" \n", "empty"),
        ("NO NEW ASSETS", "no new assets"),
        ("INVALID OPERATION", "other"),
        ("[]", ""),
        ("{}", "field event_type is missing"),
        ("[1]", "invalid type: integer `1`, expected struct MessageObject at line 1 column 1"),
        (r#"[{"event_type":"x"},{}]"#, r#"frame of unknown type "x"; field event_type is missing"#),
    ] {
        assert_eq!(shown(text), expected, "{text}");
    }
}

#[test]
fn every_message_parses_or_fails_with_a_reason() {
    let ids = r#""market":"m","asset_id":"1","timestamp":"5""#;
    for (kind, fields, expected) in [
        ("book", r#","bids":[],"asks":[]"#, "book of 1"),
        ("book", r#","bids":[]"#, "field asks is missing"),
        ("best_bid_ask", r#","best_bid":"0","best_ask":".48""#, "top of 1: - 0.48"),
        ("best_bid_ask", r#","best_bid":"","best_ask":"1""#, "top of 1: - -"),
        ("market_resolved", r#","winning_asset_id":"""#, "resolved to nothing"),
        ("market_resolved", r#","winning_asset_id":"7""#, "resolved to 7"),
        ("last_trade_price", r#","price":"0.3408574""#, "0 at 0.340857 by unknown"),
        ("last_trade_price", r#","price":"0.5","size":"2","side":"BUY""#, "2 at 0.5 by BUY"),
        ("last_trade_price", r#","price":"0.5","size":"2","side":"buy""#, "2 at 0.5 by BUY"),
        ("last_trade_price", r#","price":"0.5","size":"2","side":"Sell""#, "2 at 0.5 by SELL"),
        ("last_trade_price", r#","price":"0.5","side":"SEL""#, "field side: expected BUY or SELL"),
        ("last_trade_price", r#","price":"1.5""#, "field price: expected a price between 0 and 1"),
        (
            "tick_size_change",
            r#","new_tick_size":"1""#,
            "field new_tick_size: expected a tick between 0 and 1",
        ),
        ("price_change", "", "field price_changes is missing"),
        ("price_change", r#","changes":[]"#, "price_change in the format before 2025-09-15"),
    ] {
        let text = format!(r#"{{"event_type":"{kind}",{ids}{fields}}}"#);
        assert_eq!(shown(&text), expected, "{text}");
    }
}

#[test]
fn parsing_messages_together_or_alone_makes_no_difference() {
    let ids = r#""market":"m","asset_id":"1","timestamp":"5""#;
    let book = format!(r#"{{"event_type":"book",{ids},"bids":[],"asks":[]}}"#);
    let twice = format!(r#"{{"event_type":"book",{ids},"bids":[],"bids":[],"asks":[]}}"#);
    let crossed =
        format!(r#"{{"event_type":"book",{ids},"bids":[{{"price":"2","size":"1"}}],"asks":[]}}"#);
    let escaped = book.replace(r#""m""#, r#""\u006d""#);
    let deep = book.replace('}', &format!(r#","x":{}{}}}"#, "[".repeat(500), "]".repeat(500)));
    let new_market = r#"{"event_type":"new_market","market":"m","timestamp":"5"}"#;
    let tick = format!(r#"{{"event_type":"tick_size_change",{ids},"new_tick_size":"0.01"}}"#);
    let all = [&book, &tick, &twice, &crossed, &escaped, &deep, new_market, "{}", "[]", "7"];
    for first in all {
        for second in all {
            let array = format!("[{first} ,\n{second}]");
            // Errors give line and column within their own message.
            let each = [first, second].map(|text| shown(&format!("[{text}]")));
            assert_eq!(shown(&array), each.join("; "), "{array}");
        }
    }
    for text in [&*format!("[{book},]"), &format!("[{book}"), &format!("[{book}]]")] {
        assert!(shown(text).contains(" at line 1 column "), "{text}");
    }
}

#[test]
fn an_id_needs_no_escaping() {
    for (market, expected) in [
        ("m n", "field market: expected an id of at most 80 letters and digits"),
        ("", "field market: expected an id of at most 80 letters and digits"),
        ("\\n", r#"invalid type: string "\n", expected a borrowed string at line 1 column 45"#),
    ] {
        let text =
            format!(r#"{{"event_type":"market_resolved","market":"{market}","timestamp":"5"}}"#);
        assert_eq!(shown(&text), expected, "{text}");
    }
}
