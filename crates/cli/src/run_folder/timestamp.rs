//! The time in a run folder's name: UTC, to the second, in ISO 8601's basic form, which sorts as it reads and
//! holds no character that a file system minds.

use std::time::SystemTime;

/// `20231114T221320Z`. A clock set before 1970 reads as 1970.
pub fn utc_timestamp(time: SystemTime) -> String {
    let seconds = time.duration_since(SystemTime::UNIX_EPOCH).map_or(0, |d| d.as_secs());
    let (year, month, day) = civil_date(seconds / 86_400);
    let (hour, minute, second) = (seconds / 3600 % 24, seconds / 60 % 60, seconds % 60);
    format!("{year:04}{month:02}{day:02}T{hour:02}{minute:02}{second:02}Z")
}

/// The Gregorian date of a day counted from 1970-01-01, by Howard Hinnant's `civil_from_days`: years start in
/// March, so that the leap day is the last of its year.
fn civil_date(days: u64) -> (u64, u64, u64) {
    let z = days + 719_468; // from 0000-03-01
    let (era, day_of_era) = (z / 146_097, z % 146_097);
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted_month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * shifted_month + 2) / 5 + 1;
    let month = if shifted_month < 10 { shifted_month + 3 } else { shifted_month - 9 };
    (era * 400 + year_of_era + u64::from(month <= 2), month, day)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn known_instants() {
        let at = |s| utc_timestamp(SystemTime::UNIX_EPOCH + Duration::from_secs(s));
        assert_eq!(at(0), "19700101T000000Z");
        assert_eq!(at(951_782_399), "20000228T235959Z");
        assert_eq!(at(951_782_400), "20000229T000000Z");
        assert_eq!(at(1_709_251_199), "20240229T235959Z");
        assert_eq!(at(4_107_542_400), "21000301T000000Z");
        assert_eq!(utc_timestamp(SystemTime::UNIX_EPOCH - Duration::from_secs(1)), "19700101T000000Z");
    }
}
