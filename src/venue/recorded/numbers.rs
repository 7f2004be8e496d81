//! Numbers where the venue sends strings, as recorders write them that parse what they receive.

/// Writes every number of a JSON text as a string with the same digits: never through a float.
pub(super) fn as_strings(json: &str) -> String {
    let mut text = String::with_capacity(json.len() + json.len() / 4);
    let (mut in_string, mut is_escaped, mut in_number) = (false, false, false);
    for character in json.chars() {
        let continues_number =
            in_number && matches!(character, '0'..='9' | '.' | '-' | '+' | 'e' | 'E');
        if in_number && !continues_number {
            text.push('"');
            in_number = false;
        }
        if in_string {
            in_string = is_escaped || character != '"';
            is_escaped = !is_escaped && character == '\\';
        } else if character == '"' {
            in_string = true;
        } else if !in_number && matches!(character, '0'..='9' | '-') {
            text.push('"');
            in_number = true;
        }
        text.push(character);
    }
    if in_number {
        text.push('"');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_become_strings_and_all_else_stays() {
        for (json, expected) in [
            ("", ""),
            ("7", r#""7""#),
            ("-0.5e-3", r#""-0.5e-3""#),
            (r#"{"a":1,"b":[-2.50,3]}"#, r#"{"a":"1","b":["-2.50","3"]}"#),
            (r#"{"a1": "2 \"3\" \\", "b": 4 }"#, r#"{"a1": "2 \"3\" \\", "b": "4" }"#),
            (r#"[true,false,null,"é1"]"#, r#"[true,false,null,"é1"]"#),
        ] {
            assert_eq!(as_strings(json), expected);
        }
    }
}
