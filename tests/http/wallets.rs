//! The `wallet_id` of reads. An account has one wallet.

use paperbourse_test_support::Request;

use super::expect::{check_error, check_invalid};
use super::server::shared;

#[test]
fn a_read_shows_the_own_wallet_and_no_other() {
    let [account, other] = [shared().account(), shared().account()];
    let order = account.buy(10)["order_id"].clone();
    let id = |account: &super::server::Account<'_>| account.get("/v1/me").ok(200)["id"].to_string();
    let (own, foreign) = (id(&account), id(&other));
    assert_ne!(own, foreign);
    for path in [
        "/v1/me".to_owned(),
        "/v1/account/balance".to_owned(),
        "/v1/account/positions".to_owned(),
        "/v1/account/portfolio".to_owned(),
        "/v1/account/history".to_owned(),
        "/v1/account/settlements".to_owned(),
        "/v1/orders".to_owned(),
        format!("/v1/orders/{order}"),
    ] {
        let read = |wallet: &str| account.get(format!("{path}?wallet_id={wallet}"));
        let expected = account.get(&*path).ok(200);
        for wallet in ["api", "ALL", &own, &format!("+{own}"), &format!("0{own}")] {
            // A plus sign in a query is a space, unless it is encoded.
            assert_eq!(read(&wallet.replace('+', "%2B")).ok(200), expected, "{path} {wallet}");
        }
        for wallet in [&*foreign, "0", "-1", "63", "9007199254740990", "99999999999999999999"] {
            check_error(&read(wallet), 404, "WALLET_NOT_FOUND");
        }
        for wallet in ["", "mine", "1.0", "0x40"] {
            check_invalid(&read(wallet), &["query.wallet_id: int_parsing"]);
        }
    }
    for path in ["/v1/export/trades.csv", "/v1/export/settlements.csv"] {
        let read = |wallet: &str| account.get(format!("{path}?wallet_id={wallet}"));
        assert_eq!(read(&own).text, account.get(path).text);
        check_error(&read(&foreign), 404, "WALLET_NOT_FOUND");
        check_invalid(&read("mine"), &["query.wallet_id: int_parsing"]);
    }
    let both = account.get("/v1/account/history?limit=0&wallet_id=x");
    check_invalid(&both, &["query.limit: greater_than_equal", "query.wallet_id: int_parsing"]);
    let nobody = shared().token("a-wallet-of-nobody", None);
    let read = Request::get(format!("/v1/account/balance?wallet_id={own}")).bearer(&nobody);
    check_error(&shared().send(&read), 404, "ACCOUNT_NOT_FOUND");
}
