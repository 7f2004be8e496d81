-- Money in micro-dollars, shares in micro-shares.

CREATE TABLE accounts (
    id bigint PRIMARY KEY,
    cash bigint NOT NULL CHECK (cash >= 0)
);

CREATE TABLE api_keys (
    hash bytea PRIMARY KEY,
    id bigint NOT NULL,
    account_id bigint NOT NULL REFERENCES accounts,
    may_trade boolean NOT NULL,
    revoked_at timestamptz
);

CREATE TABLE positions (
    account_id bigint NOT NULL REFERENCES accounts,
    market_id text NOT NULL,
    outcome text NOT NULL,
    shares bigint NOT NULL CHECK (shares >= 0),
    cost bigint NOT NULL,
    PRIMARY KEY (account_id, market_id, outcome)
);

CREATE TABLE orders (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    account_id bigint NOT NULL REFERENCES accounts,
    idempotency_key text,
    fingerprint bytea NOT NULL,
    market_id text NOT NULL,
    outcome text NOT NULL,
    side text NOT NULL,
    shares bigint NOT NULL,
    notional bigint NOT NULL,
    fee bigint NOT NULL,
    -- What the answer says, so that the same request gets the same answer again.
    cash_after bigint NOT NULL,
    position_shares bigint NOT NULL,
    position_cost bigint NOT NULL,
    created_at timestamptz NOT NULL DEFAULT now(),
    UNIQUE (account_id, idempotency_key)
);

-- The accounts of the load, each with a million dollars, some shares and one key.
INSERT INTO accounts SELECT number, 1000000000000 FROM generate_series(1, :account_count) number;

INSERT INTO api_keys
SELECT sha256(convert_to('ps_live_' || lpad(to_hex(number), 64, '0'), 'UTF8')), number, number, true
FROM generate_series(1, :account_count) number;

ANALYZE;
