# Hashes, regular expressions, sorting and strings: work.pl SCALE
use strict;
use warnings;
my $scale = shift;

my %count;
my $text = join ' ', map { 'word' . ($_ * 7919 % 2003) . ($_ % 3 ? ' of' : '.') } 1 .. 2000 * $scale;
$count{$_}++ for $text =~ /(\w+)/g;
print scalar(keys %count), "\n";
my @order = sort { $count{$b} <=> $count{$a} || $a cmp $b } keys %count;
print "$_ $count{$_}\n" for @order[0 .. 4];

my @numbers = map { $_ * 31337 % 65537 } 1 .. 1500 * $scale;
my $sum = 0;
$sum += $_ for grep { $_ % 3 } sort { $a <=> $b } @numbers;
print "$sum\n";

(my $changed = $text) =~ s/word(\d+)/sprintf('%x', $1)/ge;
print length($changed), ' ', ($changed =~ tr/a-f//), "\n";

sub walk { my ($depth) = @_; return $depth ? { left => walk($depth - 1), right => walk($depth - 1) } : {} }
sub size { my ($node) = @_; my $n = 1; $n += size($_) for values %$node; return $n }
print size(walk(9)), "\n" for 1 .. $scale / 2;
