//! The operators' socket while the disk holds what they do.

use paperbourse::operators::{OperatorSocket, serve};
use paperbourse_test_support::Request;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::UnixStream;

use crate::world::{World, until_idle};

/// However many are waiting to ask something.
#[tokio::test(start_paused = true)]
async fn an_act_is_not_cut_off_for_another_operator() {
    let world = World::new().await;
    let folder = tempfile::tempdir().expect("a folder");
    let socket = OperatorSocket::bind(folder.path()).expect("a socket");
    tokio::spawn(serve(&socket, world.app()).expect("a listener"));
    let connect = async || UnixStream::connect(socket.path()).await.expect("a connection");
    let ask = async |question: Value| {
        let mut stream = connect().await;
        let request = Request::post("/", &question).to_bytes();
        stream.write_all(&request).await.expect("the server reads");
        stream
    };
    let account = world.account_of(&world.cat).await.get();

    let held = world.hold();
    let mut asked = Vec::new();
    for command in ["suspend", "resume"].into_iter().cycle().take(8) {
        let question = json!({"command": command, "account": account, "reason": "a test"});
        asked.push(ask(question).await);
        until_idle().await;
    }
    let mut idle = Vec::new();
    for _ in 0..20 {
        idle.push(connect().await);
    }
    asked.push(ask(json!({"command": "list"})).await);
    until_idle().await;
    held.release().await;
    for (number, mut stream) in asked.into_iter().enumerate() {
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.expect("an answer");
        assert!(answer.starts_with("HTTP/1.1 200 OK"), "{number}: {answer}");
    }
    drop(idle);
}
