//! What clients of the venue sent.

use paperbourse_test_support::recordings::reference_path;
use serde_json::Value;
use tempfile::TempDir;

use super::*;

/// Requests that the venue's own clients sent, which are not part of the repository. Their wallets
/// get credentials here, with which their requests are then signed.
#[test]
fn the_requests_of_clients_pass_with_credentials_of_this_server() {
    let Some(path) = reference_path("clob-vectors.json") else { return };
    let file: Value = serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap();
    let text = |of: &Value, name: &str| of[name].as_str().unwrap_or_default().to_owned();
    let data = TempDir::new().unwrap();
    let world = World::open(data.path());
    let (mut l1_count, mut l2_count) = (0, 0);
    for vector in file["vectors"].as_array().unwrap() {
        let header = |name: &str| text(&vector["headers"], name);
        let timestamp_s: i64 = header("POLY_TIMESTAMP").parse().unwrap();
        let moment = Moment { now: Timestamp::from_seconds(timestamp_s), monotonic_ns: 0 };
        let context = RequestContext { moment, ..world.context() };
        let signer = Address::parse(header("POLY_ADDRESS")).unwrap();
        if vector["kind"] == "l1" {
            let [address, signature, timestamp, nonce] =
                ["ADDRESS", "SIGNATURE", "TIMESTAMP", "NONCE"]
                    .map(|it| header(&format!("POLY_{it}")));
            let headers = L1Headers {
                address: address.as_bytes(),
                signature: signature.as_bytes(),
                timestamp: timestamp.as_bytes(),
                nonce: nonce.as_bytes(),
            };
            let verify =
                |moment| world.block_on(world.service.verify_wallet(&headers, ADDRESS, moment));
            let auth = verify(moment).unwrap();
            assert_eq!(auth.address, signer);
            let now = Timestamp::from_seconds(timestamp_s + 61);
            let late = Denied::from(WalletError::NotCurrent { now_s: now.seconds() });
            assert_eq!(verify(Moment { now, ..moment }), Err(late));
            world.block_on(world.service.wallet_credentials(&auth, context)).unwrap();
            l1_count += 1;
            continue;
        }
        let auth = ClobAuth { address: signer, ..auth(0, 0) };
        let credentials = world.block_on(world.service.wallet_credentials(&auth, context));
        let target = text(vector, "target");
        let path = target.split_once('?').map_or(&*target, |(path, _)| path);
        let (method, body) = (text(vector, "method"), text(vector, "body"));
        let request = (&*method, path, body.as_bytes());
        let sent = Sent::new(signer, &credentials.unwrap(), timestamp_s, request);
        let headers = sent.headers();
        let identify =
            |headers| world.service.identify_wallet(headers, ADDRESS, moment).map(|_| ());
        identify(&headers).unwrap();
        world.service.require_signed(&headers, request, ADDRESS, moment).unwrap();
        // Their own credentials were granted by another server.
        let (key, passphrase) = (header("POLY_API_KEY"), header("POLY_PASSPHRASE"));
        let theirs =
            L2Headers { api_key: key.as_bytes(), passphrase: passphrase.as_bytes(), ..headers };
        assert_eq!(identify(&theirs), Err(WalletError::UnknownApiKey.into()));
        l2_count += 1;
    }
    eprintln!("{l1_count} wallet signatures and {l2_count} signed requests");
    assert!(l1_count > 0 && l2_count >= 68);
}
