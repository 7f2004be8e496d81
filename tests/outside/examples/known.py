"""What is known of single examples: which of them cannot work here, and which stream for ever."""

CHAIN = "sends transactions to a chain"
FOREIGN_ORDER = "asks for an order of somebody else"
FOREIGN_PROXY = "orders for the proxy wallet of somebody else"
TOO_SOON = "since July 2026, Polymarket takes no expiration less than three minutes ahead"
NAMELESS = 'asks for a market with the id "condition_id"'
NO_IMPORT = "uses os, which it does not import"
TO_FILL_IN = "its key is to be filled in"
READ_ONLY = "there are no read-only keys here"
BUILDERS = "there are no keys for builders here"
QUOTES = "there are no requests for quotes here"

NO_KEYS = "this server has no keys of this kind"
NO_NETWORK = "polygon-amoy.g.alchemy.com"
NO_PATH = "NOT_FOUND"

# By client and example: some words that it prints when it fails, and the reason.
FAILURES = {
    ("py-clob-client-v2", "account/approve_allowances.py"): (NO_NETWORK, CHAIN),
    ("py-clob-client-v2", "account/approve_neg_risk_allowances.py"): (NO_NETWORK, CHAIN),
    ("py-clob-client-v2", "account/get_order.py"): ("order not found", FOREIGN_ORDER),
    ("py-clob-client-v2", "builders/create_builder_api_key.py"): (NO_KEYS, BUILDERS),
    ("py-clob-client-v2", "orders/gtd_limit_buy.py"): ("invalid expiration", TOO_SOON),
    ("py-clob-client-v2", "orders/gtd_limit_sell.py"): ("invalid expiration", TOO_SOON),
    ("clob-client-v2", "account/approveAllowances.ts"): (NO_NETWORK, CHAIN),
    ("clob-client-v2", "account/approveDepositWalletAllowances.ts"): ("__dirname", CHAIN),
    ("clob-client-v2", "account/approveNegRiskAllowances.ts"): (NO_NETWORK, CHAIN),
    ("clob-client-v2", "account/getOrder.ts"): ("order not found", FOREIGN_ORDER),
    ("clob-client-v2", "builders/createBuilderApiKey.ts"): (NO_KEYS, BUILDERS),
    ("clob-client-v2", "market/getMarkets.ts"): ("market not found", NAMELESS),
    ("clob-client-v2", "orders/gtdLimitBuy.ts"): ("invalid expiration", TOO_SOON),
    ("clob-client-v2", "orders/gtdLimitSell.ts"): ("invalid expiration", TOO_SOON),
    ("py-clob-client", "create_readonly_api_key.py"): (NO_KEYS, READ_ONLY),
    ("py-clob-client", "delete_readonly_api_key.py"): (NO_KEYS, READ_ONLY),
    ("py-clob-client", "get_open_orders_with_readonly_key.py"): ("Error 401", READ_ONLY),
    ("py-clob-client", "get_markets.py"): ("market not found", NAMELESS),
    ("py-clob-client", "get_order.py"): ("order not found", FOREIGN_ORDER),
    **{
        ("py-clob-client", f"get_{name}.py"): ("name 'os' is not defined", NO_IMPORT)
        for name in ("ok", "orderbooks", "price", "prices", "server_time", "spreads")
    },
    **{
        ("py-clob-client", f"rfq_{name}.py"): (NO_PATH, QUOTES)
        for name in (
            "accept_quote",
            "approve_order",
            "cancel_quote",
            "cancel_request",
            "config",
            "create_quote",
            "create_request",
            "full_flow",
            "get_best_quote",
            "get_quotes",
            "get_requests",
        )
    },
    ("clob-client", "GTDOrder.ts"): ("invalid expiration", TOO_SOON),
    ("clob-client", "approveAllowances.ts"): ("noNetwork", CHAIN),
    ("clob-client", "approveNegRiskAllowances.ts"): ("noNetwork", CHAIN),
    ("clob-client", "createBuilderApiKey.ts"): (NO_KEYS, BUILDERS),
    ("clob-client", "revokeBuilderApiKeys.ts"): ("Unauthorized/Invalid api key", BUILDERS),
    ("clob-client", "createReadonlyApiKey.ts"): (NO_KEYS, READ_ONLY),
    ("clob-client", "deleteReadonlyApiKey.ts"): (NO_KEYS, READ_ONLY),
    ("clob-client", "getOpenOrdersWithReadonlyKey.ts"): ("status code 401", READ_ONLY),
    ("clob-client", "getMarkets.ts"): ("market not found", NAMELESS),
    ("clob-client", "getOrder.ts"): ("order not found", FOREIGN_ORDER),
    ("clob-client", "order.ts"): ("invalid hexlify value", TO_FILL_IN),
    ("clob-client", "testPolyProxyMarketBuy.ts"): ("", FOREIGN_PROXY),
    ("clob-client", "testPolyProxyMarketSell.ts"): ("", FOREIGN_PROXY),
    **{
        ("clob-client", f"rfq{name}.ts"): (NO_PATH, QUOTES)
        for name in (
            "AcceptQuote",
            "ApproveOrder",
            "CancelQuote",
            "CancelRequest",
            "Config",
            "CreateQuote",
            "CreateRequest",
            "FullFlow",
            "GetBestQuote",
            "GetQuotes",
            "GetRequests",
        )
    },
}

# By client and example: the words that show that it has worked, and an example that is run beside
# it so that there is something to print.
STREAMS = {
    ("py-clob-client-v2", "market/market_socket.py"): ('"event_type":"book"', None),
    ("py-clob-client-v2", "account/user_socket.py"): ("PLACEMENT", "orders/gtc_limit_buy.py"),
    ("clob-client-v2", "market/marketSocket.ts"): ('"event_type":"book"', None),
    ("clob-client-v2", "account/userSocket.ts"): ("PLACEMENT", "orders/gtcLimitBuy.ts"),
    ("py-clob-client", "post_heartbeat.py"): ("heartbeat_id", None),
    ("clob-client", "postHeartbeat.ts"): ("heartbeat_id", None),
    ("clob-client", "socketConnection.ts"): ('"event_type":"book"', None),
}
