//! What a venue writes is shown as text, whatever it is.

use std::iter;

use serde_json::json;

use super::{Market, Stage, WIDE, open, server_of};
use crate::browser::driver::Screen;
use crate::browser::{PHONE, axe};

/// How many hostile markets there are, unless the variable says another number.
const MARKETS_DEFAULT: usize = 20;
const MARKETS: &str = "PAPERBOURSE_CONSOLE_MARKETS";

/// About as long as the server takes questions and labels from a venue.
const QUESTION_BYTES_MAX: usize = 2_000;
const LABEL_BYTES_MAX: usize = 190;

/// Texts that a page which takes text for markup would run, load or be broken by.
fn hostile_texts() -> Vec<String> {
    let known = [
        "<script>window.hacked = true</script>",
        "<img src=x onerror='window.hacked = true'>",
        "</button></li><svg onload=window.hacked=true>",
        "${window.hacked = true}",
        "javascript:window.hacked=true",
        "\" onmouseover=\"window.hacked=true\" x=\"",
        "<iframe srcdoc='<script>parent.hacked = true</script>'>",
        "&lt;b&gt;&amp;&#x3c;&nbsp;",
        "\u{202e}desrever\u{202d} \u{2066}isolated without an end",
        "\u{200b}\u{200f}\u{feff}invisible",
        "Z\u{351}\u{343}\u{303}\u{33e}\u{369}a\u{36b}\u{351}\u{343}lgo",
        "null",
        "<style>* { display: none }</style>",
        "constructor",
        "__proto__",
    ];
    known.map(str::to_owned).to_vec()
}

/// Words as long as the server takes from a venue.
fn long_texts(bytes: usize) -> Vec<String> {
    vec!["x".repeat(bytes), "<b>".repeat(bytes / 3), "\u{1f469}\u{200d}".repeat(bytes / 7)]
}

/// As many markets with hostile texts in all places, in all combinations.
fn hostile_markets(count: usize) -> Vec<Market> {
    let known = hostile_texts();
    let [questions, labels] =
        [QUESTION_BYTES_MAX, LABEL_BYTES_MAX].map(|max| [known.clone(), long_texts(max)].concat());
    let question = |at: usize| &questions[at % questions.len()];
    let label = |at: usize| &labels[at % labels.len()];
    let market = |place: usize| Market {
        question: format!("{} {place}", question(place)),
        outcomes: [format!("{} a", label(place / 3)), format!("{} b", label(place / 5 + 1))],
        category: question(place / 7 + 2).clone(),
        stage: Stage::Open,
    };
    iter::once(Market::of(Stage::Open)).chain((1..count).map(market)).collect()
}

#[track_caller]
fn check(screen: Screen) {
    if axe().is_none() {
        return;
    }
    let count = std::env::var(MARKETS).map_or(MARKETS_DEFAULT, |text| text.parse().unwrap());
    let markets = hostile_markets(count);
    let (server, _folder) = server_of(&markets, &[]);
    let mut browser = open(screen, &server);
    browser.find(".list li");
    for (place, market) in markets.iter().enumerate() {
        // An id in the address shows markets that are not in the list too.
        let found = browser.run(&format!(
            "location.hash = '{id}';
             const question = {question};
             const shown = () => document.querySelector('h1').textContent === question;
             for (const view of document.querySelectorAll('.views button')) {{
               if (view.textContent === 'Trade') view.click();
             }}
             const isWhole = () => shown() && document.querySelector('.book .at');
             for (let n = 0; n < 600 && !isWhole(); n += 1) {{
               await new Promise(requestAnimationFrame);
             }}
             const labels = [...document.querySelectorAll('.outcomes bdi')];
             const made = '#app :is(script, style, img, svg, iframe, i, b b, [onerror], [onload])';
             return {{
               question: document.querySelector('h1').textContent,
               outcomes: labels.map((it) => it.textContent),
               category: document.querySelector('.facts bdi').textContent,
               made: [...document.querySelectorAll(made)].map((it) => it.outerHTML),
               hacked: window.hacked ?? false,
               overflow: document.documentElement.scrollWidth > innerWidth,
               book: Boolean(document.querySelector('.book .at')),
             }};",
            id = super::recording::id(place),
            question = json!(market.question),
        ));
        let expected = json!({
            "question": market.question,
            "outcomes": market.outcomes,
            "category": market.category,
            "made": [],
            "hacked": false,
            "overflow": false,
            "book": true,
        });
        assert_eq!(found, expected, "market {place}");
    }
    // The list, which shows them all at once.
    let found = browser.run(
        "for (const view of document.querySelectorAll('.views button')) {
           if (view.textContent === 'Markets') view.click();
         }
         await new Promise(requestAnimationFrame);
         await new Promise(requestAnimationFrame);
         const rows = [...document.querySelectorAll('.list li:not(.more)')];
         return {
           questions: rows.map((it) => it.querySelector('.question').textContent),
           tall: rows.filter((it) => it.offsetHeight > 90).length,
           overflow: document.documentElement.scrollWidth > innerWidth,
           hacked: window.hacked ?? false,
         };",
    );
    let questions: Vec<&String> = markets.iter().map(|market| &market.question).take(100).collect();
    let expected = json!({ "questions": questions, "tall": 0, "overflow": false, "hacked": false });
    assert_eq!(found, expected);
}

#[test]
fn hostile_text_is_text_on_a_desktop() {
    check(WIDE);
}

#[test]
fn hostile_text_is_text_on_a_phone() {
    check(PHONE);
}
