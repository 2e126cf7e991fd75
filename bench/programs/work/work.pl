# Hashes, regular expressions, sorting and strings: work.pl SCALE
use strict;
use warnings;
my $scale = shift;

sub walk { my ($depth) = @_; return $depth ? { left => walk($depth - 1), right => walk($depth - 1) } : {} }
sub size { my ($node) = @_; my $n = 1; $n += size($_) for values %$node; return $n }

my (%count, $sum, $length, $letters, $nodes);
for my $round (1 .. $scale) {
  my $text = join ' ', map { 'word' . (($_ + $round) * 7919 % 2003) . ($_ % 3 ? ' of' : '.') } 1 .. 2000;
  $count{$_}++ for $text =~ /(\w+)/g;
  my @numbers = map { ($_ + $round) * 31337 % 65537 } 1 .. 1500;
  $sum += $_ for grep { $_ % 3 } sort { $a <=> $b } @numbers;
  (my $changed = $text) =~ s/word(\d+)/sprintf('%x', $1)/ge;
  $length += length $changed;
  $letters += $changed =~ tr/a-f//;
  $nodes += size(walk(6));
}
my @order = sort { $count{$b} <=> $count{$a} || $a cmp $b } keys %count;
print "$_ $count{$_}\n" for @order[0 .. 4];
print scalar(@order), " $sum $length $letters $nodes\n";
