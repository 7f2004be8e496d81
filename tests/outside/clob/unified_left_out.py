"""The methods of Polymarket's unified client that are not asked of this server, by reason, each
with a call. `check` sees that none of them works: one that does has to be tested.
"""

import asyncio
import inspect

from polymarket import AsyncSecureClient, MergeMarketConditionRequest, TransactionCall
from polymarket.auth import BuilderApiKey
from polymarket.errors import PolymarketError

import trading

ADDRESS = "0x" + "1" * 40
BUILDER = BuilderApiKey(key="key", secret="c2VjcmV0", passphrase="phrase")
# In place of the condition id of a market.
MARKET = "MARKET"

# What the client itself makes of answers: positions are split and merged by the version of their
# market, which the catalogue does not have, and redeemed in a market that a chain has resolved.
UNUSABLE = (
    "Missing market version for condition",
    "No market found for condition",
    "server rejected WebSocket connection",
)
QUOTE = {
    "rfq_id": "x",
    "quote_id": "x",
    "builder_code": "0x" + "1" * 64,
    "direction": "BUY",
    "position_id": "7" * 70,
    "blended_price": "0.5",
    "maker_amount": "5",
    "taker_amount": "10",
    "total_required": "5",
    "expires_at": 4_000_000_000_000,
}

CHAIN = {
    "approve_erc1155_for_all": {"token_address": ADDRESS, "operator_address": ADDRESS},
    "approve_erc20": {"token_address": ADDRESS, "spender_address": ADDRESS, "amount": 1},
    "execute_transaction": {"calls": [TransactionCall(to=ADDRESS, data="0x", value=0)]},
    "get_trading_approvals_state": {},
    "merge_multiple_positions": {"positions": MARKET},
    "merge_positions": {"condition_id": MARKET, "amount": 1},
    "redeem_positions": {"condition_id": MARKET},
    "setup_trading_approvals": {},
    "split_position": {"condition_id": MARKET, "amount": 1},
    "transfer_erc20": {"token_address": ADDRESS, "recipient_address": ADDRESS, "amount": 1},
    "plan_collateral_return": {},
}
SESSION_KEYS = {
    "authorize_session_key": {"address": ADDRESS},
    "fetch_session_keys": {},
    "revoke_session_key": {"address": ADDRESS},
}
RFQ = {
    "accept_combo_quote": {"quote": QUOTE},
    "fetch_rfq_status": {"rfq_id": "x"},
    "list_combo_markets": {},
    "open_rfq_session": {},
    "request_combo_quote": {"leg_position_ids": ["1", "2"], "direction": "BUY", "amount": 1},
    "wait_for_combo_fill": {"rfq_id": "x", "timeout": 1},
}
ACCOUNTING = {"download_accounting_snapshot": {}}
PERPS = {
    "deposit_to_perps": {"amount": 1},
    "fetch_perps_book": {"instrument_id": 1},
    "fetch_perps_builder_status": {"address": ADDRESS},
    "fetch_perps_fees": {},
    "fetch_perps_instruments": {},
    "fetch_perps_position_snapshots": {"address": ADDRESS, "active_instrument_ids": [1]},
    "fetch_perps_registration": {"address": ADDRESS},
    "fetch_perps_ticker": {"instrument_id": 1},
    "fetch_perps_tickers": {},
    "list_perps_candles": {"instrument_id": 1, "interval": "1m"},
    "list_perps_funding_history": {"instrument_id": 1},
    "list_perps_trades": {"instrument_id": 1},
    "open_perps_session": {},
    "revoke_perps_credentials": {"proxy": ADDRESS},
    "withdraw_from_perps": {"amount": 1},
}

# Takes what another of these methods would return.
PLAN = {"execute_collateral_return_plan": {"plan": "what `plan_collateral_return` returns"}}

LEFT_OUT = {
    "sends transactions to a chain": CHAIN,
    "keys for others than the wallet's signer, which this server refuses": SESSION_KEYS,
    "combined bets, of which no market here is part": RFQ,
    "an archive of files": ACCOUNTING,
    "perpetual futures": PERPS,
}
NAMES = {name for methods in [*LEFT_OUT.values(), PLAN] for name in methods}


async def call(client, name, arguments, market):
    """Calls a method; of a list, reads the first page, and of a session, the beginning."""
    positions = [MergeMarketConditionRequest(condition_id=market, amount=1)]
    given = {"condition_id": market, "positions": positions}
    arguments = {key: given[key] if it == MARKET else it for key, it in arguments.items()}
    result = getattr(client, name)(**arguments)
    if inspect.isawaitable(result):
        result = await result
    if hasattr(result, "__aenter__"):
        await result.__aenter__()
    if hasattr(result, "iter_items"):
        await anext(result.iter_items())
    return result


async def check_all(environment, market):
    client = await AsyncSecureClient._create(
        private_key=trading.KEY,
        wallet=trading.WALLETS[3],
        environment=environment,
        api_key=BUILDER,
    )
    async with client:
        for methods in LEFT_OUT.values():
            for name, arguments in methods.items():
                try:
                    result = await call(client, name, arguments, market)
                except PolymarketError as error:
                    is_absent = getattr(error, "status", None) in (404, 405)
                    assert is_absent or str(error).startswith(UNUSABLE), (name, error)
                else:
                    raise AssertionError(f"{name} works: {result}")


def check(environment, market):
    """No method that is left out works with this environment, all of whose addresses are this
    server's, and this market."""
    asyncio.run(check_all(environment, market))
